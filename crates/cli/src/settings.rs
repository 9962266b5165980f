//! Settings in layers: a flag counts before a variable, a variable before the file, the file before what is built in.
//! Each keeps where it came from, so that `jobtree config show --origin` can tell.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// Where a daemon listens if nobody says otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7717";

/// A setting's name in the file, its variable, and what it is for.
struct Known {
    key: &'static str,
    variable: &'static str,
    secret: bool,
}

/// All there are, in the order in which they are shown. A flag has the key's name with `-` for `_`.
const KNOWN: &[Known] = &[
    known("url", "JOBTREE_URL"),
    Known {
        secret: true,
        ..known("token", "JOBTREE_TOKEN")
    },
    known("token_file", "JOBTREE_TOKEN_FILE"),
    known("ca_file", "JOBTREE_CA_FILE"),
    known("data_dir", "JOBTREE_DATA_DIR"),
    known("listen", "JOBTREE_LISTEN"),
    Known {
        // A URL of a database may hold a password.
        secret: true,
        ..known("store", "JOBTREE_STORE")
    },
    known("policy", "JOBTREE_POLICY"),
    known("addon", "JOBTREE_ADDON"),
];

const fn known(key: &'static str, variable: &'static str) -> Known {
    Known {
        key,
        variable,
        secret: false,
    }
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag(String),
    Variable(&'static str),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub value: String,
    pub origin: Origin,
}

/// One as it is shown: key, value if it is set, origin.
pub struct Shown {
    pub key: &'static str,
    pub value: Option<String>,
    pub origin: Option<Origin>,
}

/// All of them.
#[derive(Debug)]
pub struct Settings {
    set: BTreeMap<&'static str, Setting>,
    /// The file that was read, or would be.
    pub file: PathBuf,
}

/// What the layers are made of; a value of its own, for tests.
pub struct Sources<'a> {
    /// What was given on the command line, by key.
    pub flag: &'a dyn Fn(&str) -> Option<String>,
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file; none if it is not there.
    pub read: &'a dyn Fn(&Path) -> std::io::Result<Option<String>>,
}

impl Settings {
    /// Puts the layers together.
    ///
    /// # Errors
    /// If the file is asked for and not there, or holds what is no setting.
    pub fn gather(sources: &Sources<'_>) -> Result<Self, CliError> {
        let variable = |name: &str| (sources.variable)(name).filter(|value| !value.is_empty());
        let asked = (sources.flag)("config").or_else(|| variable("JOBTREE_CONFIG"));
        let file = match &asked {
            Some(path) => PathBuf::from(path),
            None => folder(&variable, "XDG_CONFIG_HOME", ".config").join("config.toml"),
        };
        let text = (sources.read)(&file).map_err(|error| {
            CliError::usage(format!("{} cannot be read: {error}", file.display()))
        })?;
        if text.is_none() && asked.is_some() {
            let told = format!("there is no file {}", file.display());
            return Err(CliError::usage(told)
                .hint("leave out --config and JOBTREE_CONFIG, or make the file"));
        }
        let written = written_in(&file, &text.unwrap_or_default())?;
        let mut set = BTreeMap::new();
        for Known {
            key,
            variable: name,
            ..
        } in KNOWN
        {
            let flag = key.replace('_', "-");
            let from_flag = || {
                let value = (sources.flag)(&flag)?;
                let origin = Origin::Flag(format!("--{flag}"));
                Some(Setting { value, origin })
            };
            let from_variable = || {
                let (value, origin) = (variable(name)?, Origin::Variable(name));
                Some(Setting { value, origin })
            };
            let from_file = || {
                let (value, origin) = (written.get(*key)?.clone(), Origin::File(file.clone()));
                Some(Setting { value, origin })
            };
            if let Some(setting) = from_flag().or_else(from_variable).or_else(from_file) {
                set.insert(*key, setting);
            }
        }
        let mut default = |key, value: String| {
            let origin = Origin::Default;
            set.entry(key).or_insert(Setting { value, origin });
        };
        default("url", format!("http://{DEFAULT_LISTEN}"));
        default("listen", DEFAULT_LISTEN.into());
        let data = folder(&variable, "XDG_DATA_HOME", ".local/share");
        default("data_dir", data.to_string_lossy().into_owned());
        Ok(Settings { set, file })
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.set.get(key).map(|setting| setting.value.as_str())
    }

    /// One that has a built-in value.
    pub fn value(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.value("data_dir").into()
    }

    /// The token: a setting, or in a file that is one, or in the file that a daemon wrote into the data directory.
    ///
    /// # Errors
    /// If a file is there and cannot be read. Without the daemon's file there is no token, and the daemon may not ask
    /// for one.
    pub fn token(&self) -> Result<Option<String>, CliError> {
        // Whichever was set nearer: a flag's file counts before a variable's token.
        let nearer = |setting: &Setting| match setting.origin {
            Origin::Flag(_) => 0,
            Origin::Variable(_) => 1,
            Origin::File(_) | Origin::Default => 2,
        };
        let (token, file) = (self.set.get("token"), self.set.get("token_file"));
        if let Some(token) = token
            && file.is_none_or(|file| nearer(token) <= nearer(file))
        {
            return Ok(Some(token.value.clone()));
        }
        if let Some(Setting { value: path, .. }) = file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                CliError::usage(format!("the token's file {path} cannot be read: {error}"))
            })?;
            return Ok(Some(text.trim().into()));
        }
        let path = self.data_dir().join("admin.token");
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // The data directory may be closed to this user altogether.
            Err(error) => Err(CliError::refused(format!(
                "the daemon's token {} cannot be read: {error}",
                path.display()
            ))
            .hint("use the account that started the daemon, or set JOBTREE_TOKEN to a token of your own")),
        }
    }

    /// All, for people: secrets are not shown.
    pub fn shown(&self) -> Vec<Shown> {
        let shown = KNOWN.iter().map(|Known { key, secret, .. }| {
            let set = self.set.get(key);
            // `memory` is no secret, a URL may be.
            let hides = *secret && (*key == "token" || value_has_url(set));
            let hide = |value: &str| match hides {
                true => "(hidden)".to_owned(),
                false => value.to_owned(),
            };
            Shown {
                key,
                value: set.map(|set| hide(&set.value)),
                origin: set.map(|set| set.origin.clone()),
            }
        });
        shown.collect()
    }
}

fn value_has_url(set: Option<&Setting>) -> bool {
    set.is_some_and(|set| set.value.contains("://"))
}

/// A folder of ours below one that the XDG rules name.
fn folder(variable: &dyn Fn(&str) -> Option<String>, name: &str, otherwise: &str) -> PathBuf {
    let base = variable(name).map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(variable("HOME").unwrap_or_else(|| "/".into())).join(otherwise)
    });
    base.join("jobtree")
}

fn written_in(file: &Path, text: &str) -> Result<BTreeMap<String, String>, CliError> {
    let place = file.display();
    let table: toml::Table = text
        .parse()
        .map_err(|error| CliError::usage(format!("{place} is not TOML: {error}")))?;
    let known: Vec<&str> = KNOWN.iter().map(|known| known.key).collect();
    let read = table.into_iter().map(|(key, value)| {
        if !known.contains(&key.as_str()) {
            let told = format!("{place}: there is no setting {key:?}");
            return Err(CliError::usage(told).hint(format!("write one of {}", known.join(", "))));
        }
        match value {
            toml::Value::String(text) => Ok((key, text)),
            other => {
                let kind = other.type_str();
                let told = format!("{place}: {key} is a {kind}, and must be a text in quotes");
                Err(CliError::usage(told))
            }
        }
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(
        flags: &[(&str, &str)],
        variables: &[(&str, &str)],
        file: Option<&str>,
    ) -> Result<Settings, CliError> {
        let find = |among: &[(&str, &str)], name: &str| {
            let found = among.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::gather(&Sources {
            flag: &|name| find(flags, name),
            variable: &|name| find(variables, name),
            read: &|_| Ok(file.map(str::to_owned)),
        })
    }

    #[test]
    fn the_nearest_layer_counts() {
        let file = Some("url = 'http://file'\naddon = 'a'");
        let variables = [("JOBTREE_URL", "http://variable"), ("HOME", "/home/x")];
        let settings = gather(&[("url", "http://flag")], &variables, file).unwrap();
        assert_eq!(settings.value("url"), "http://flag");
        let settings = gather(&[], &variables, file).unwrap();
        assert_eq!(settings.value("url"), "http://variable");
        let settings = gather(&[], &[("JOBTREE_URL", "")], file).unwrap();
        assert_eq!(settings.value("url"), "http://file");
        assert_eq!(settings.get("addon"), Some("a"));
        let settings = gather(&[], &variables[1..], None).unwrap();
        assert_eq!(settings.value("url"), "http://127.0.0.1:7717");
        assert_eq!(settings.value("data_dir"), "/home/x/.local/share/jobtree");
        assert_eq!(
            settings.file,
            Path::new("/home/x/.config/jobtree/config.toml")
        );
    }

    #[test]
    fn where_each_came_from_is_told_and_secrets_are_not() {
        let variables = [("JOBTREE_TOKEN", "very-secret"), ("XDG_DATA_HOME", "/d")];
        let settings = gather(&[], &variables, Some("policy = '/p'")).unwrap();
        let shown = settings.shown();
        let of = |key| shown.iter().find(|shown| shown.key == key).unwrap();
        assert_eq!(of("token").value.as_deref(), Some("(hidden)"));
        assert_eq!(of("token").origin, Some(Origin::Variable("JOBTREE_TOKEN")));
        assert!(matches!(of("policy").origin, Some(Origin::File(_))));
        assert_eq!(of("addon").value, None);
        assert_eq!(settings.token().unwrap().as_deref(), Some("very-secret"));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for wrong in ["urll = 'x'", "url = 1", "url = "] {
            let error = gather(&[], &[], Some(wrong)).unwrap_err();
            assert_eq!(error.exit(), crate::exit::Exit::USAGE, "{wrong}: {error}");
        }
        let error = gather(&[("config", "/no/where")], &[], None).unwrap_err();
        assert!(error.to_string().contains("/no/where"), "{error}");
    }
}
