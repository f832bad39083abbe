//! Measured values and the model's own, side by side.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The variable with the folder that comparisons are written to.
pub(crate) const FOLDER: &str = "MLX5_EVIDENCE_COMPARISONS";

/// Rows of a table beside what the model does. docs/evidence.md shows them.
#[derive(Debug)]
pub struct Comparison {
    name: String,
    rows: Vec<Vec<String>>,
}

impl Comparison {
    /// Returns one without rows. It has the name of its table.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { name: name.to_owned(), rows: vec![columns] }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// It has another number of cells than there are columns.
    pub fn row(&mut self, cells: &[&dyn ToString]) {
        assert_eq!(cells.len(), self.rows[0].len(), "{}: cells and columns", self.name);
        self.rows.push(cells.iter().map(|cell| cell.to_string()).collect());
    }

    /// Writes it, where a run of the command asks for that.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn write(&self) {
        let Some(folder) = env::var_os(FOLDER) else { return };
        let path = PathBuf::from(folder).join(&self.name).with_extension("csv");
        let failed = |error: &dyn std::error::Error| -> ! { panic!("{}: {error}", path.display()) };
        let mut writer = csv::Writer::from_path(&path).unwrap_or_else(|error| failed(&error));
        for row in &self.rows {
            writer.write_record(row).unwrap_or_else(|error| failed(&error));
        }
        writer.flush().unwrap_or_else(|error| failed(&error));
    }

    /// Reads those of a folder, by name.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn all(folder: &Path) -> Result<Vec<Self>, String> {
        let failed = |error: &dyn std::error::Error| format!("{}: {error}", folder.display());
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
            let path = entry.map_err(|error| failed(&error))?.path();
            let mut reader = csv::ReaderBuilder::new();
            let reader = reader.has_headers(false).from_path(&path);
            let records = reader.map_err(|error| failed(&error))?.into_records();
            let rows = records
                .map(|row| row.map(|row| row.iter().map(str::to_owned).collect()))
                .collect::<Result<_, _>>()
                .map_err(|error| failed(&error))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            all.push(Self { name, rows });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its rows, the names of columns first.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}
