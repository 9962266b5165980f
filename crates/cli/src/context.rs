//! What every command is given: the settings, where the daemon is, and how to print.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::ArgMatches;
use jobtree_client::{Client, ClientBuilder, Probe};

use crate::error::CliError;
use crate::out::Out;
use crate::settings::{Settings, Sources};

/// For how long a command that takes long waits for a daemon that went away.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Context {
    pub settings: Settings,
    pub out: Out,
}

impl Context {
    /// From the environment alone, for a shell that completes what is being typed.
    ///
    /// # Errors
    /// If the settings' file makes no sense.
    pub fn of_environment() -> Result<Self, CliError> {
        let settings = Settings::gather(&Sources {
            flag: &|_| None,
            variable: &|name| std::env::var(name).ok(),
            read: &read_if_there,
        })?;
        let out = Out::new(false, true, true);
        Ok(Context { settings, out })
    }

    /// From the arguments of a subcommand, which know the global flags, too.
    ///
    /// # Errors
    /// If the settings' file makes no sense.
    pub fn from(arguments: &ArgMatches) -> Result<Self, CliError> {
        let flag = |name: &str| {
            let value = arguments.try_get_one::<String>(name).ok().flatten();
            value.cloned()
        };
        let settings = Settings::gather(&Sources {
            flag: &flag,
            variable: &|name| std::env::var(name).ok(),
            read: &read_if_there,
        })?;
        let out = Out::new(
            arguments.get_flag("json"),
            arguments.get_flag("quiet"),
            arguments.get_flag("no-color"),
        );
        Ok(Context { settings, out })
    }

    /// A client of the daemon. It connects with its first call, and gives up soon: somebody waits in front of it.
    ///
    /// # Errors
    /// If the address or the token cannot be.
    pub fn client(&self) -> Result<Client, CliError> {
        Ok(self.builder(Duration::from_millis(300))?.build()?)
    }

    /// A client for what takes long: a daemon that is there now may go away for a while, and come back.
    ///
    /// # Errors
    /// If the address or the token cannot be, or nobody answers.
    pub fn patient_client(&self) -> Result<Client, CliError> {
        self.client()?.health()?;
        let told = Mutex::new(String::new());
        let out = self.out.clone();
        let builder = self.builder(PATIENCE)?.on_retry(move |error| {
            let text = error.to_string();
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            // A line for each new reason, and not for each attempt.
            if *told != text {
                out.note(&format!("waiting: {text}"));
                *told = text;
            }
        });
        Ok(builder.build()?)
    }

    /// Returns what the daemon says of itself if it does not answer calls in time: its store may be the reason.
    pub fn trouble(&self) -> Option<String> {
        match self.client().ok()?.ready().ok()? {
            Probe::Unwell(why) => Some(why),
            Probe::Well => None,
        }
    }

    fn builder(&self, patience: Duration) -> Result<ClientBuilder, CliError> {
        let mut builder = Client::builder(self.settings.value("url")).patience(patience);
        if let Some(token) = self.settings.token()? {
            builder = builder.token(token);
        }
        if let Some(file) = self.settings.get("ca_file") {
            builder = builder.ca_file(file);
        }
        Ok(builder)
    }
}

fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
