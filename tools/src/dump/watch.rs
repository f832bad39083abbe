//! Reads the objects repeatedly, and reports changes.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::look::Target;
use super::report::{Dump, Object};
use crate::outcome::Result;
use crate::output::Output;

/// The changes from one look to the next.
#[derive(Debug, Serialize)]
struct Changes {
    /// Seconds since the first look.
    after: f64,
    made: Vec<String>,
    gone: Vec<String>,
    changed: Vec<Changed>,
}

/// An object with fields that changed.
#[derive(Debug, Serialize)]
struct Changed {
    object: String,
    fields: Vec<Field>,
}

#[derive(Debug, Serialize)]
struct Field {
    name: String,
    before: u64,
    now: u64,
}

/// Reports changes until the process ends or the given number of looks is taken.
pub(super) fn run(
    target: &Target<'_>,
    mut before: Dump,
    every: Duration,
    count: Option<u64>,
    output: &Output,
) -> Result<()> {
    let began = Instant::now();
    let mut looks = 0;
    while count.is_none_or(|count| looks < count) {
        thread::sleep(every);
        let now = match target.look() {
            Ok(now) => now,
            // The device is gone because the process ended.
            Err(_) if !target.lives() => return Ok(()),
            Err(error) => return Err(error),
        };
        output.report("dump", &Changes::between(&before, &now, began.elapsed()))?;
        before = now;
        looks += 1;
        if !target.lives() {
            return Ok(());
        }
    }
    Ok(())
}

impl Changes {
    fn between(before: &Dump, now: &Dump, after: Duration) -> Changes {
        let same = |a: &(i32, &Object), b: &(i32, &Object)| {
            (a.0, a.1.kind, a.1.handle, a.1.number) == (b.0, b.1.kind, b.1.handle, b.1.number)
        };
        let missing = |from: &Dump, of: &Dump| {
            let absent = of.objects().filter(|one| !from.objects().any(|other| same(one, &other)));
            absent.map(|(_, object)| object.name()).collect()
        };
        let changed = now.objects().filter_map(|one| {
            let (_, earlier) = before.objects().find(|other| same(&one, other))?;
            let (context, earlier) = (one.1.context.as_ref()?, earlier.context.as_ref()?);
            let fields: Vec<Field> = earlier
                .differences(context)
                .into_iter()
                .map(|(field, before, now)| Field { name: field.path().to_string(), before, now })
                .collect();
            (!fields.is_empty()).then(|| Changed { object: one.1.name(), fields })
        });
        Changes {
            after: (after.as_secs_f64() * 1000.0).round() / 1000.0,
            made: missing(before, now),
            gone: missing(now, before),
            changed: changed.collect(),
        }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.3} s", self.after)?;
        if self.made.is_empty() && self.gone.is_empty() && self.changed.is_empty() {
            write!(f, ": no change")?;
        }
        for object in &self.made {
            write!(f, "\n{object}: made")?;
        }
        for object in &self.gone {
            write!(f, "\n{object}: gone")?;
        }
        for changed in &self.changed {
            write!(f, "\n{}:", changed.object)?;
            for field in &changed.fields {
                write!(f, "\n  {} = {:#x}, was {:#x}", field.name, field.now, field.before)?;
            }
        }
        Ok(())
    }
}
