//! A Slurm installation of one host, in the namespace of this process: a controller and a node, without
//! accounts and without keys. It ends with this.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::mesh_world::run;
use crate::rig::folder::Folder;

/// How long the node may take until jobs can run on it.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Slurm {
    configuration: PathBuf,
    daemons: Vec<Child>,
    folder: Folder,
}

impl Slurm {
    /// Starts both daemons, and waits until the node takes jobs.
    pub fn start() -> Slurm {
        // Its library finds no name in a namespace whose only address is a loopback one.
        run(Command::new("ip").args(["address", "add", "10.78.0.1/24", "dev", "bridge0"]));
        let folder = Folder::new("mesh-slurm");
        for name in ["state", "spool"] {
            fs::create_dir(folder.file(name)).unwrap();
        }
        let configuration = folder.file("slurm.conf");
        let at = folder.path().display();
        let text = format!(
            "ClusterName=here\nSlurmctldHost=localhost(127.0.0.1)\nAuthType=auth/none\n\
             CredType=cred/none\nSlurmUser=root\nSlurmdUser=root\nStateSaveLocation={at}/state\n\
             SlurmdSpoolDir={at}/spool\nSlurmctldPidFile={at}/controller.pid\n\
             SlurmdPidFile={at}/node.pid\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n\
             SelectType=select/linear\nMpiDefault=none\nJobAcctGatherType=jobacct_gather/none\n\
             ReturnToService=2\nNodeName=here NodeHostname=here NodeAddr=127.0.0.1 State=UNKNOWN\n\
             PartitionName=all Nodes=here Default=YES MaxTime=INFINITE State=UP\n"
        );
        fs::write(&configuration, text).unwrap();
        let daemon = |words: &[&str]| {
            let log = fs::File::create(folder.file(words[0])).unwrap();
            // Users have no path to it.
            let mut command = Command::new(Path::new("/usr/sbin").join(words[0]));
            command.args(&words[1..]).env("SLURM_CONF", &configuration);
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            command.spawn().unwrap_or_else(|error| panic!("{words:?}: {error}"))
        };
        let daemons = vec![daemon(&["slurmctld", "-D"]), daemon(&["slurmd", "-D", "-N", "here"])];
        let slurm = Slurm { configuration: configuration.clone(), daemons, folder };
        let began = Instant::now();
        while !slurm.is_idle() {
            assert!(began.elapsed() < PATIENCE, "{}", slurm.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
        slurm
    }

    /// A command of Slurm's.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", &self.configuration).stdin(Stdio::null());
        command
    }

    fn is_idle(&self) -> bool {
        // Until the controller listens, it fails.
        let told = self.command("sinfo").args(["-h", "-o", "%T"]).output().unwrap();
        String::from_utf8_lossy(&told.stdout).trim() == "idle"
    }

    fn logs(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.file(name)).unwrap_or_default();
        format!("{}{}", read("slurmctld"), read("slurmd"))
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // It may have ended already.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
