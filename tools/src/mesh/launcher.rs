//! The place of this process among the ranks, by the variables of the launcher that started it.

use serde::{Deserialize, Serialize};

/// The launcher that started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Launcher {
    /// Options of the command line.
    Options,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `srun`.
    Slurm,
    /// Another launcher with PMIx, such as PRRTE.
    Pmix,
    /// `mpiexec` of MPICH or of another Hydra.
    Hydra,
}

/// The place of a process among the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The launcher that told it.
    pub launcher: Launcher,
    /// The rank, from 0.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The number of the rank among those of its host, where the launcher tells it.
    pub local: Option<u32>,
    /// The host's name, where the launcher tells it.
    pub host: Option<String>,
}

/// The variables of a launcher: rank, sizes, local ranks, host.
type Known =
    (Launcher, &'static str, &'static [&'static str], &'static [&'static str], &'static str);

/// The variables of all launchers. A variable of Open MPI's is in processes of `srun` only if `mpirun`
/// started it there, so Open MPI comes first. A PMIx launcher tells no size.
const KNOWN: &[Known] = &[
    (
        Launcher::OpenMpi,
        "OMPI_COMM_WORLD_RANK",
        &["OMPI_COMM_WORLD_SIZE"],
        &["OMPI_COMM_WORLD_LOCAL_RANK"],
        "PMIX_HOSTNAME",
    ),
    (Launcher::Hydra, "PMI_RANK", &["PMI_SIZE"], &["MPI_LOCALRANKID"], "HYDI_HOSTNAME"),
    (
        Launcher::Slurm,
        "SLURM_PROCID",
        &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        &["SLURM_LOCALID"],
        "SLURMD_NODENAME",
    ),
    (Launcher::Pmix, "PMIX_RANK", &["PMIX_SIZE"], &["PMIX_LOCAL_RANK"], "PMIX_HOSTNAME"),
];

impl Place {
    /// Returns the place by options, or else by the variables of a launcher.
    ///
    /// # Errors
    /// Returns in words which variable is missing or wrong, and how to tell the place otherwise.
    pub fn find(
        rank: Option<u32>,
        size: Option<u32>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Place, String> {
        let place = match (rank, size) {
            (Some(rank), Some(size)) => {
                Place { launcher: Launcher::Options, rank, size, local: None, host: None }
            }
            (rank, size) => Place::told(rank, size, &variable)?,
        };
        if place.rank >= place.size {
            let Place { rank, size, .. } = place;
            return Err(format!("rank {rank} of {size} ranks: ranks are numbered from 0"));
        }
        Ok(place)
    }

    fn told(
        rank: Option<u32>,
        size: Option<u32>,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Place, String> {
        let found = KNOWN.iter().find(|known| variable(known.1).is_some());
        let Some((launcher, rank_name, sizes, locals, host)) = found else {
            return Err(
                "no launcher has told this process its rank: start it by mpirun, mpiexec or \
                        srun, give --rank and --size, or --hosts FILE"
                    .to_owned(),
            );
        };
        let number = |name: &str| -> Result<Option<u32>, String> {
            let Some(text) = variable(name) else { return Ok(None) };
            let number = text.parse();
            number
                .map(Some)
                .map_err(|_| format!("{name}={text} is no number: give --rank and --size"))
        };
        let first = |names: &[&str]| -> Result<Option<u32>, String> {
            names.iter().find_map(|name| number(name).transpose()).transpose()
        };
        let size = match size {
            Some(size) => size,
            None => first(sizes)?.ok_or_else(|| {
                format!("{rank_name} is set, and {} is not: give --size", sizes[0])
            })?,
        };
        let rank = match rank {
            Some(rank) => rank,
            None => number(rank_name)?.unwrap_or(0),
        };
        Ok(Place { launcher: *launcher, rank, size, local: first(locals)?, host: variable(host) })
    }
}

/// Returns the host of rank 0 by a list of hosts as Slurm writes it: its first name, `c01` of
/// `c[01-12,20],d3`.
#[must_use]
pub fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let first = match rest.strip_prefix('[') {
        None => name.to_owned(),
        Some(numbers) => {
            let (numbers, after) = numbers.split_once(']')?;
            let number = numbers.split([',', '-']).next()?;
            let after = after.split([',', '[']).next().unwrap_or_default();
            format!("{name}{number}{after}")
        }
    };
    (!first.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(variables: &[(&str, &str)]) -> Result<Place, String> {
        Place::find(None, None, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn place(launcher: Launcher, rank: u32, size: u32, local: u32, host: &str) -> Place {
        let host = (!host.is_empty()).then(|| host.to_owned());
        Place { launcher, rank, size, local: Some(local), host }
    }

    #[test]
    fn each_launcher_tells_the_place_by_its_variables() {
        let open = by(&[
            ("PMIX_RANK", "3"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "16"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("PMIX_HOSTNAME", "c1"),
        ]);
        assert_eq!(open, Ok(place(Launcher::OpenMpi, 3, 16, 1, "c1")));
        let hydra = by(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")]);
        assert_eq!(hydra, Ok(place(Launcher::Hydra, 0, 2, 0, "")));
        let slurm = by(&[
            ("SLURM_PROCID", "7"),
            ("SLURM_NTASKS", "9"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_LOCALID", "3"),
            ("SLURMD_NODENAME", "c2"),
        ]);
        assert_eq!(slurm, Ok(place(Launcher::Slurm, 7, 8, 3, "c2")));
        // mpirun inside a Slurm job starts its daemons by srun.
        let inside = by(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "6"),
        ]);
        assert_eq!(inside.map(|place| (place.rank, place.size)), Ok((5, 6)));
        let given = Place::find(Some(1), Some(4), |_| None).unwrap();
        assert_eq!((given.launcher, given.rank, given.size), (Launcher::Options, 1, 4));
        let sized = Place::find(None, Some(4), |name| (name == "PMIX_RANK").then(|| "2".into()));
        assert_eq!(sized.map(|place| (place.rank, place.size)), Ok((2, 4)));
    }

    #[test]
    fn what_is_missing_or_wrong_is_told_with_its_cure() {
        assert!(by(&[]).unwrap_err().contains("--rank and --size"));
        assert!(by(&[("PMIX_RANK", "1")]).unwrap_err().contains("give --size"));
        let wrong = by(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(wrong.contains("PMI_RANK=x is no number"), "{wrong}");
        let beyond = by(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).unwrap_err();
        assert!(beyond.contains("numbered from 0"), "{beyond}");
    }

    #[test]
    fn the_first_host_of_a_list_of_slurm_is_that_of_rank_0() {
        for (list, first) in
            [("c1", "c1"), ("c1,c2", "c1"), ("c[01-12,20],d3", "c01"), ("gpu-[3,5]-x,y", "gpu-3-x")]
        {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!(first_host(""), None);
        assert_eq!(first_host("c[1"), None);
    }
}
