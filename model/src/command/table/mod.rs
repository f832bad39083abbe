//! One table of what each command accepts and refuses: a [`Row`] for every opcode.
//!
//! A row is a function that creates the objects the command needs and returns a [`Case`]. A case
//! holds a command that is accepted. For each checked field it also holds a refused value and the
//! [`Refusal`] that this value must return.
//!
//! The tests below check that the table is complete: every opcode of [`COMMANDS`] has a row, and
//! every refusal occurs. No bit of a command outside the fields listed in its row may cause a
//! refusal. So a new command or a new check fails these tests until its row is here. [`mutants`]
//! gives the commands of the table with fields changed at random.

mod census;
mod dynamic;
mod ethernet;
mod flow_action;
mod function;
mod memory;
mod mutants;
mod queue_pair;
mod queues;
mod resource;
mod shared;
mod steering;
mod work_queue;

use std::collections::BTreeSet;

use mlx5_evidence::{Comparison, Table};
use mlx5_sys::ifc::{Field, opcode};

use super::refusal::OF_DEVICES;
use super::test::{Command, Rig};
use super::{COMMANDS, OP_MOD, OPCODE, Refusal, UID};
use crate::card::Link;
use crate::clock::Random;
use census::census;

/// Every row, in the order of the files.
fn table() -> impl Iterator<Item = &'static Row> {
    let parts = [
        function::ROWS,
        resource::ROWS,
        memory::ROWS,
        queues::ROWS,
        shared::ROWS,
        queue_pair::ROWS,
        dynamic::ROWS,
        ethernet::ROWS,
        steering::ROWS,
        flow_action::ROWS,
    ];
    parts.into_iter().flatten()
}

/// A command of the table.
struct Row {
    /// The link of the device that executes it.
    link: Link,
    /// The issuers of the command: the driver (`false`), a user context (`true`), or both.
    givers: &'static [bool],
    /// Creates what the command needs on the device.
    case: fn(&mut Rig) -> Case,
}

impl Row {
    /// Creates a row for a command that the driver and user contexts issue.
    const fn new(case: fn(&mut Rig) -> Case) -> Self {
        Self { link: Link::InfiniBand, givers: &[false, true], case }
    }

    /// Creates a row for a command that only the driver issues.
    const fn drivers(case: fn(&mut Rig) -> Case) -> Self {
        Self { givers: &[false], ..Self::new(case) }
    }

    /// Creates a row for a command that only user contexts issue.
    const fn users(case: fn(&mut Rig) -> Case) -> Self {
        Self { givers: &[true], ..Self::new(case) }
    }

    /// Moves the row to a device on Ethernet.
    const fn roce(self) -> Self {
        Self { link: Link::Roce, ..self }
    }

    /// Creates a device for the row, controlled by the driver or by a user.
    fn rig(&self, user: bool) -> Rig {
        let mut rig = Rig::on(self.link);
        rig.stranger = rig.uctx();
        if user {
            rig.become_user();
        }
        rig
    }
}

/// A command that is accepted, and changes of it that are refused.
struct Case {
    accepted: Command,
    /// The refusal if another user context issues it unchanged; `None` if that is accepted, too.
    stranger: Option<Refusal>,
    /// Fields, each with a value for which the command is refused.
    fields: Vec<(Field, u64, Refusal)>,
    /// Fields that select the kind of command; other values belong to other rows.
    kinds: Vec<Field>,
    /// Fields with the number of an object of the driver, which users may not name.
    foreign: Vec<(Field, u64)>,
    /// Other commands of the same opcode that are refused.
    others: Vec<(Command, Refusal)>,
    /// The refusal on a device of the other link, if it is refused there.
    elsewhere: Option<Refusal>,
    /// The refusal for the driver, if only users may issue the command.
    driver: Option<Refusal>,
    /// An action after which the command is refused, and the refusal.
    after: Option<(Spoil, Refusal)>,
    /// Objects that other objects use.
    held: Vec<Held>,
}

/// An object that other objects use: the command is refused for it until they are destroyed.
struct Held {
    field: Field,
    number: u64,
    refusal: Refusal,
    /// The commands that destroy the objects that use it.
    releases: Vec<Command>,
}

/// An action after which a device refuses a command that it has accepted.
type Spoil = fn(&mut Rig, &Command);

impl Case {
    /// Creates a case for a command on an object. For other user contexts the object is not theirs.
    fn new(accepted: Command) -> Self {
        let (fields, foreign, others) = (Vec::new(), Vec::new(), Vec::new());
        let stranger = Some(Refusal::Owner);
        let (elsewhere, driver, after) = (None, None, None);
        let (kinds, held) = (Vec::new(), Vec::new());
        Self { accepted, stranger, fields, kinds, foreign, others, elsewhere, driver, after, held }
    }

    /// Creates a case for a command that every user context may issue unchanged.
    fn anyones(accepted: Command) -> Self {
        Self { stranger: None, ..Self::new(accepted) }
    }

    /// Creates a case for a command that user contexts get this refusal for.
    fn drivers(accepted: Command, refusal: Refusal) -> Self {
        Self { stranger: Some(refusal), ..Self::new(accepted) }
    }

    /// Adds a field's value for which it is refused.
    fn refuses(mut self, field: Field, value: impl Into<u64>, refusal: Refusal) -> Self {
        self.fields.push((field, value.into(), refusal));
        self
    }

    /// Adds fields that would name another function.
    fn other_function(self, fields: &[Field]) -> Self {
        fields.iter().fold(self, |case, field| case.refuses(*field, 1u64, Refusal::OtherFunction))
    }

    /// Adds a field that selects the kind of command.
    fn kind(mut self, field: Field) -> Self {
        self.kinds.push(field);
        self
    }

    /// Adds a field that names an object, and the number of an object of the driver.
    fn foreign(mut self, field: Field, number: u32) -> Self {
        self.foreign.push((field, number.into()));
        self
    }

    /// Adds another command of this opcode that is refused.
    fn otherwise(mut self, command: Command, refusal: Refusal) -> Self {
        self.others.push((command, refusal));
        self
    }

    /// Sets the refusal on a device of the other link.
    fn elsewhere(mut self, refusal: Refusal) -> Self {
        self.elsewhere = Some(refusal);
        self
    }

    /// Sets the refusal for the driver.
    fn of_driver(mut self, refusal: Refusal) -> Self {
        self.driver = Some(refusal);
        self
    }

    /// Sets an action after which it is refused.
    fn after(mut self, spoil: Spoil, refusal: Refusal) -> Self {
        self.after = Some((spoil, refusal));
        self
    }

    /// Sets the refusal of the second of two equal commands.
    fn twice(self, refusal: Refusal) -> Self {
        self.after(|_, _| {}, refusal)
    }

    /// Adds an object in use: the command is refused until the last of its users is destroyed.
    fn held(
        self,
        field: Field,
        number: impl Into<u64>,
        refusal: Refusal,
        releases: impl IntoIterator<Item = Command>,
    ) -> Self {
        let (number, releases) = (number.into(), releases.into_iter().collect());
        let mut case = self.refuses(field, number, refusal);
        case.held.push(Held { field, number, refusal, releases });
        case
    }

    fn opcode(&self) -> u16 {
        OPCODE.get(&self.accepted.0) as u16
    }

    fn name(&self) -> &'static str {
        opcode::name(self.opcode()).expect("a command's name")
    }

    /// Returns the command's entry in [`COMMANDS`].
    fn command(&self) -> &'static super::Command {
        let own = |command: &&super::Command| command.opcode == self.opcode();
        COMMANDS.iter().find(own).expect("a command of the table")
    }

    /// Returns all commands that are refused for every issuer, each with a text of its change.
    fn refused(&self, rig: &Rig) -> Vec<(Command, usize, Refusal, String)> {
        let command = self.command();
        let mut refused = Vec::new();
        let mut add = |given: Command, room: usize, refusal: Refusal, what: String| {
            refused.push((given, room, refusal, what));
        };
        for (field, value, refusal) in &self.fields {
            let what = format!("{field:?} = {value:#x}");
            add(self.accepted.clone().set(*field, *value), ROOM, *refusal, what);
        }
        for (field, number) in &self.foreign {
            if rig.user != 0 {
                let what = format!("{field:?} = {number:#x} of the driver");
                add(self.accepted.clone().set(*field, *number), ROOM, Refusal::Owner, what);
            }
        }
        for (index, (other, refusal)) in self.others.iter().enumerate() {
            assert_eq!(OPCODE.get(&other.0) as u16, self.opcode());
            add(other.clone(), ROOM, *refusal, format!("other command {index}"));
        }
        let mut short = self.accepted.clone();
        short.0.truncate(command.input - 1);
        add(short, ROOM, Refusal::InputLength, "cut short".to_owned());
        let (given, room) = (self.accepted.clone(), command.output - 1);
        add(given, room, Refusal::OutputLength, "too little room".to_owned());
        let stranger = self.accepted.clone().set(UID, NOBODY);
        add(stranger, ROOM, Refusal::User, "by nobody".to_owned());
        if !command.modifier {
            let given = self.accepted.clone().set(OP_MOD, 1u64);
            add(given, ROOM, Refusal::OpModifier, "with an op_mod".to_owned());
        }
        refused
    }

    /// Returns whether a bit of the command is in a listed field or in one that all commands have.
    /// Bits are counted from the highest bit of the first byte.
    fn lists(&self, bit: usize) -> bool {
        /// Opcode, uid and op_mod.
        const HEADER: usize = 8;
        let listed = self.fields.iter().map(|(field, ..)| field).chain(&self.kinds);
        let listed = listed.chain(self.foreign.iter().map(|(field, _)| field));
        bit < HEADER * 8
            || listed.copied().any(|field| {
                (field.bit_offset()..field.bit_offset() + field.width()).contains(&bit)
            })
    }
}

/// Bytes for a reply: more than any command needs.
const ROOM: usize = 0x1010;

/// A number of no user context.
const NOBODY: u64 = 77;

#[test]
fn every_command_is_in_the_table() {
    let given: BTreeSet<u16> =
        table().map(|row| (row.case)(&mut row.rig(row.givers[0])).opcode()).collect();
    let known: BTreeSet<u16> = COMMANDS.iter().map(|command| command.opcode).collect();
    let missing: Vec<_> = known.difference(&given).map(|code| opcode::name(*code)).collect();
    assert!(missing.is_empty(), "model/src/command/table has no row for {missing:?}");
}

/// Returns every row with each of its issuers.
fn given() -> impl Iterator<Item = (&'static Row, bool)> {
    table().flat_map(|row| row.givers.iter().map(move |user| (row, *user)))
}

/// Returns the statements of a row that are false.
fn wrong(row: &Row, user: bool) -> Vec<String> {
    let mut rig = row.rig(user);
    let case = (row.case)(&mut rig);
    let mut wrong = Vec::new();
    let mut expect = |met: Result<Vec<u8>, Refusal>, expected: Option<Refusal>, what: &str| {
        if met.as_ref().err() != expected.as_ref() {
            let met = met.map(|_| ());
            let giver = if user { "a user" } else { "the driver" };
            wrong.push(format!("{} of {giver}, {what}: {met:?}, not {expected:?}", case.name()));
        }
    };
    let before = census(&rig.card);
    for (given, room, refusal, what) in case.refused(&rig) {
        expect(rig.run_into(&given, room), Some(refusal), &what);
    }
    let by_stranger = case.accepted.clone().set(UID, rig.stranger);
    if case.stranger.is_some() {
        expect(rig.run(&by_stranger), case.stranger, "by a stranger");
    }
    if let Some(refusal) = case.driver {
        let met = rig.as_driver(|rig| rig.run(&case.accepted));
        expect(met, Some(refusal), "by the driver");
    }
    if census(&rig.card) != before {
        expect(Ok(Vec::new()), Some(Refusal::Opcode), "what is refused has changed something");
    }
    if case.stranger.is_none() {
        expect(rig.run(&by_stranger), None, "by a stranger");
    }
    expect(rig.run(&case.accepted), None, "as it is");
    if let Some((spoil, refusal)) = case.after {
        spoil(&mut rig, &case.accepted);
        expect(rig.run(&case.accepted), Some(refusal), "afterwards");
    }
    // Each user of the object is the last one once.
    for (at, held) in case.held.iter().enumerate() {
        for last in 0..held.releases.len() {
            let mut rig = row.rig(user);
            let case = (row.case)(&mut rig);
            let Held { field, number, refusal, releases } = &case.held[at];
            let given = case.accepted.clone().set(*field, *number);
            let what = format!("{field:?} = {number:#x}, held by number {last}");
            for (_, release) in releases.iter().enumerate().filter(|(other, _)| *other != last) {
                expect(rig.run(release), None, &what);
            }
            expect(rig.run(&given), Some(*refusal), &what);
            expect(rig.run(&releases[last]), None, &what);
            expect(rig.run(&given), None, &format!("{what} no more"));
        }
    }
    if let Some(refusal) = case.elsewhere {
        let link = match row.link {
            Link::InfiniBand => Link::Roce,
            Link::Roce => Link::InfiniBand,
        };
        let mut rig = Row { link, ..*row }.rig(user);
        let case = (row.case)(&mut rig);
        expect(rig.run(&case.accepted), Some(refusal), "on the other link");
    }
    wrong
}

#[test]
fn what_the_table_says_is_so() {
    let wrong: Vec<String> = given().flat_map(|(row, user)| wrong(row, user)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_refusal_is_met() {
    let mut met = BTreeSet::from([Refusal::Opcode.syndrome()]);
    for (row, user) in given() {
        let mut rig = row.rig(user);
        let case = (row.case)(&mut rig);
        let refused = case.refused(&rig).into_iter().map(|(_, _, refusal, _)| refusal);
        let refused = refused.chain(case.stranger).chain(case.elsewhere).chain(case.driver);
        let refused = refused.chain(case.after.map(|(_, refusal)| refusal));
        met.extend(refused.map(Refusal::syndrome));
    }
    let unmet = Refusal::ALL.iter().filter(|refusal| !met.contains(&refusal.syndrome()));
    let unmet: Vec<_> = unmet.collect();
    assert!(unmet.is_empty(), "no row of model/src/command/table meets {unmet:?}");
}

/// Measured by others: each syndrome of devices that the model knows is the reply to that command, with
/// that status where it is public.
#[test]
fn syndromes_of_devices_go_with_their_commands() {
    let mut met = BTreeSet::new();
    for (row, user) in given() {
        let mut rig = row.rig(user);
        let case = (row.case)(&mut rig);
        let mut refused = |rig: &mut Rig, command: &Command, room: usize| {
            let refused = rig.run_raw(command, &mut vec![0; room]);
            met.extend(refused.map(|(status, syndrome)| (case.opcode(), status, syndrome)));
        };
        for (command, room, ..) in case.refused(&rig) {
            refused(&mut rig, &command, room);
        }
        if let Some((spoil, _)) = case.after {
            rig.run(&case.accepted).expect("it is accepted");
            spoil(&mut rig, &case.accepted);
            refused(&mut rig, &case.accepted, ROOM);
        }
    }
    let columns =
        ["syndrome", "command", "status", "cause on devices", "status here", "cause here"];
    let mut comparison = Comparison::new("command-syndromes", &columns);
    let mut known = 0;
    for row in Table::read("command-syndromes").rows() {
        let Some(refusal) = row.hex("syndrome").and_then(Refusal::from_syndrome) else { continue };
        let syndrome = row.hex("syndrome").unwrap_or_default();
        let opcode = row.hex("opcode").expect("an opcode") as u16;
        let here = met.iter().find(|met| (met.0, met.2) == (opcode, syndrome));
        let &(_, status, _) = here.unwrap_or_else(|| panic!("{syndrome:#x} is never met"));
        let here = format!("{status:#04x}");
        let public = row.text("status");
        assert!(public.is_empty() || public.split('/').any(|one| one == here), "{syndrome:#x}");
        known += 1;
        let cells: [&dyn ToString; 6] = [
            &row.text("syndrome"),
            &row.text("command"),
            &row.text("status"),
            &row.text("cause"),
            &here,
            &refusal,
        ];
        comparison.row(&cells);
    }
    assert_eq!(known, OF_DEVICES.len());
    comparison.write();
}

/// Changes bits of a command outside the fields listed in its row.
fn change(case: &Case, mut value: impl FnMut(usize) -> bool) -> Command {
    let mut given = case.accepted.clone();
    for bit in 0..given.0.len() * 8 {
        if !case.lists(bit) {
            let (byte, mask) = (&mut given.0[bit / 8], 0x80 >> (bit % 8));
            *byte = if value(bit) { *byte | mask } else { *byte & !mask };
        }
    }
    given
}

/// The number of times that the unlisted bits are drawn.
const ROUNDS: usize = 8;

/// Returns a refusal without a change of a listed field: the single bits that cause it, if any, as
/// dword and bit.
fn unlisted(row: &Row, user: bool, round: usize, random: &mut Random) -> Option<String> {
    let mut rig = row.rig(user);
    let case = (row.case)(&mut rig);
    let given = match round {
        0 => change(&case, |_| false),
        1 => change(&case, |_| true),
        _ => change(&case, |_| random.draw() & 1 == 1),
    };
    let refusal = rig.run(&given).err()?;
    let culprits = (0..given.0.len() * 8).filter(|bit| {
        let (mask, mut alone) = (0x80 >> (bit % 8), case.accepted.clone());
        alone.0[bit / 8] = alone.0[bit / 8] & !mask | given.0[bit / 8] & mask;
        if case.lists(*bit) || alone.0 == case.accepted.0 {
            return false;
        }
        let mut rig = row.rig(user);
        (row.case)(&mut rig);
        rig.run(&alone).is_err()
    });
    let culprits: Vec<_> =
        culprits.map(|bit| format!("{:#x}.{}", bit / 32 * 4, 31 - bit % 32)).collect();
    Some(format!("{}: {refusal:?} for {culprits:?}", case.name()))
}

#[test]
fn what_no_row_lists_is_never_refused() {
    let random = &mut Random::seeded(1);
    let wrong: Vec<String> = given()
        .filter_map(|(row, user)| (0..ROUNDS).find_map(|round| unlisted(row, user, round, random)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
