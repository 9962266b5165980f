//! A daemon that speaks HTTPS, and what the command says to one that it cannot trust.

mod support;

use std::fs;

use support::{ALWAYS, Daemon, Folder, Ran, watch};

/// A certificate that signed itself, and its key: paths of both.
fn certificate(folder: &Folder, name: &str, hosts: &[&str]) -> [String; 2] {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(hosts).expect("a certificate");
    [
        folder.write(&format!("{name}.pem"), &made.cert.pem()),
        folder.write(&format!("{name}.key"), &made.signing_key.serialize_pem()),
    ]
}

/// A daemon with a certificate for these names, and the certificate.
fn daemon(folder: &Folder, hosts: &[&str], more: &[&str]) -> (Daemon, String) {
    let [own, key] = certificate(folder, "own", hosts);
    let mut arguments = vec!["--store", "memory", "--policy", ALWAYS];
    arguments.extend(["--tls-cert", &own, "--tls-key", &key]);
    arguments.extend(more);
    let daemon = Daemon::trusted(&own, &arguments);
    assert!(
        daemon.url.starts_with("https://127.0.0.1:"),
        "{}",
        daemon.url
    );
    (daemon, own)
}

#[test]
fn certificates_are_named_by_flag_variable_or_file() {
    let _watchdog = watch();
    let folder = Folder::new();
    let (daemon, own) = daemon(&folder, &["127.0.0.1", "localhost"], &["--runner"]);
    let id = daemon.run(&["submit", "photos", "index"]).text();

    let bare = || {
        let mut command = daemon.command();
        command.env_remove("JOBTREE_CA_FILE");
        command
    };
    Ran::of(&mut bare(), &["ls"]).exits(3);
    let by_flag = Ran::of(&mut bare(), &["--ca-file", &own, "ls", "--whole-ids"]).exits(0);
    assert!(by_flag.stdout.contains(&id), "{by_flag:#?}");
    let settings = folder.write("settings.toml", &format!("ca_file = {own:?}\n"));
    let by_file = Ran::of(&mut bare(), &["--config", &settings, "show", &id]).exits(0);
    assert!(by_file.stdout.contains("photos"), "{by_file:#?}");

    // By any name that stands in the certificate; and its own runner reaches it, too.
    let localhost = daemon.url.replace("127.0.0.1", "localhost");
    let ran = daemon.run(&["--url", &localhost, "run", "--", "echo", "secretly"]);
    assert!(ran.exits(0).stdout.contains("secretly"));
}

#[test]
fn whoever_cannot_be_trusted_is_told_of_with_what_to_do() {
    let _watchdog = watch();
    let folder = Folder::new();
    let (daemon, own) = daemon(&folder, &["127.0.0.1"], &[]);
    let [other, _] = certificate(&folder, "other", &["127.0.0.1"]);

    let hinted = |arguments: &[&str], told: &str, hint: &str| {
        let ran = daemon.run(arguments);
        assert_eq!(ran.stdout, "", "{ran:#?}");
        assert!(ran.stderr.contains(told), "{told}: {ran:#?}");
        assert!(ran.stderr.contains(hint), "{hint}: {ran:#?}");
        ran
    };
    // Signed by nobody who is known here.
    hinted(
        &["--ca-file", &other, "ls"],
        "not to be trusted",
        "--ca-file",
    )
    .exits(3);
    hinted(
        &["--ca-file", &other, "watch"],
        "not to be trusted",
        "--ca-file",
    )
    .exits(3);
    // The certificate is for another name.
    let elsewhere = daemon.url.replace("127.0.0.1", "localhost");
    hinted(
        &["--url", &elsewhere, "ls"],
        "not valid for name",
        "a name that stands in it",
    )
    .exits(3);
    // Spoken plainly to one who does not.
    let plain = daemon.url.replace("https://", "http://");
    hinted(&["--url", &plain, "ls"], "speaks no HTTP", "write https://").exits(1);

    // And the other way round.
    let open = Daemon::start();
    let secret = open.url.replace("http://", "https://");
    let ran = Ran::of(&mut open.command(), &["--url", &secret, "ls"]).exits(3);
    assert!(ran.stderr.contains("an address with http://"), "{ran:#?}");

    // What is no certificate is said before anything is asked.
    let nothing = folder.write("nothing.pem", "");
    hinted(
        &["--ca-file", &nothing, "ls"],
        "holds no certificate",
        "PEM",
    )
    .exits(2);
    fs::remove_file(&own).expect("a file");
    hinted(&["ls"], "own.pem", "No such file").exits(2);
}
