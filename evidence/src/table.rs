//! Tables of numbers.

use std::str::FromStr;

/// A table of measured values.
#[derive(Debug)]
pub struct Table {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    cells: &'a [String],
}

impl Table {
    /// Reads `tables/NAME.csv`.
    ///
    /// # Panics
    /// There is no such table: the test that asks for it is wrong.
    pub fn read(name: &str) -> Self {
        let path = crate::folder().join("tables").join(name).with_extension("csv");
        let failed = |error: csv::Error| -> ! { panic!("{}: {error}", path.display()) };
        let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|error| failed(error));
        let cells = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let columns = cells(reader.headers().unwrap_or_else(|error| failed(error)));
        let rows = reader.records().map(|row| cells(&row.unwrap_or_else(|error| failed(error))));
        let rows: Vec<Vec<String>> = rows.collect();
        assert!(!rows.is_empty(), "{}: no rows", path.display());
        Self { name: name.to_owned(), columns, rows }
    }

    /// Returns its rows.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { table: self, cells })
    }
}

impl<'a> Row<'a> {
    /// Returns the text of a cell.
    ///
    /// # Panics
    /// There is no such column.
    pub fn text(&self, column: &str) -> &'a str {
        let found = self.table.columns.iter().position(|name| name == column);
        let Some(index) = found else { panic!("{} has no column {column}", self.table.name) };
        &self.cells[index]
    }

    /// Returns the text of the first cell, by which rows are found.
    pub fn first(&self) -> &'a str {
        self.cells.first().map_or("", String::as_str)
    }

    /// Returns the number of a cell; `None` if the cell is empty.
    ///
    /// # Panics
    /// There is no such column, or the cell has something else.
    pub fn number<T: FromStr>(&self, column: &str) -> Option<T> {
        let text = self.text(column);
        let wrong = || panic!("{}, {column}: {text} is not the number asked for", self.table.name);
        (!text.is_empty()).then(|| text.parse().unwrap_or_else(|_| wrong()))
    }

    /// Returns the hexadecimal number of a cell, with or without `0x`; `None` if the cell is empty.
    ///
    /// # Panics
    /// As for [`number`](Self::number).
    pub fn hex(&self, column: &str) -> Option<u32> {
        let text = self.text(column);
        let wrong = |_| panic!("{}, {column}: {text} is not hexadecimal", self.table.name);
        let digits = text.trim_start_matches("0x");
        (!text.is_empty()).then(|| u32::from_str_radix(digits, 16).unwrap_or_else(wrong))
    }
}
