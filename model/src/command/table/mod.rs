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

use mlx5_sys::ifc::{Field, opcode};

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
    ];
    parts.into_iter().flatten()
}

/// A command of the table.
struct Row {
    /// The link of the card that it is given to.
    link: Link,
    /// Who gives it: the driver, a user context, or both.
    givers: &'static [bool],
    /// Makes what it needs on the card.
    case: fn(&mut Rig) -> Case,
}

impl Row {
    /// A command that the driver and user contexts give.
    const fn new(case: fn(&mut Rig) -> Case) -> Self {
        Self { link: Link::InfiniBand, givers: &[false, true], case }
    }

    /// A command that the driver alone gives.
    const fn drivers(case: fn(&mut Rig) -> Case) -> Self {
        Self { givers: &[false], ..Self::new(case) }
    }

    /// A command that user contexts alone give.
    const fn users(case: fn(&mut Rig) -> Case) -> Self {
        Self { givers: &[true], ..Self::new(case) }
    }

    /// The same on Ethernet.
    const fn roce(self) -> Self {
        Self { link: Link::Roce, ..self }
    }

    /// A card for it, in the hands of the driver or of a user.
    fn rig(&self, user: bool) -> Rig {
        let mut rig = Rig::on(self.link);
        rig.stranger = rig.uctx();
        if user {
            rig.become_user();
        }
        rig
    }
}

/// A command that is accepted, and what is refused of it.
struct Case {
    accepted: Command,
    /// What another user context is told that gives it as it is; `None` where that is accepted, too.
    stranger: Option<Refusal>,
    /// Fields, each with a value with which the command is refused.
    fields: Vec<(Field, u64, Refusal)>,
    /// Fields that say what kind of command it is; with other values it is another row's.
    kinds: Vec<Field>,
    /// Fields with the number of an object of the driver's own, which users may not name.
    foreign: Vec<(Field, u64)>,
    /// Other commands of the same opcode that are refused.
    others: Vec<(Command, Refusal)>,
    /// What the command is refused with on a card of the other link, where it is.
    elsewhere: Option<Refusal>,
    /// What the driver itself is told, where only users give the command.
    driver: Option<Refusal>,
    /// What can be done after which the command is refused, and with what.
    after: Option<(Spoil, Refusal)>,
    /// Objects that others stand on.
    held: Vec<Held>,
}

/// An object that others stand on: the command is refused for it until they are gone.
struct Held {
    field: Field,
    number: u64,
    refusal: Refusal,
    /// The commands that destroy what stands on it.
    releases: Vec<Command>,
}

/// Brings a card to where it refuses a command that it has accepted.
type Spoil = fn(&mut Rig, &Command);

impl Case {
    /// A command that names an object, of which other user contexts are told that it is not theirs.
    fn new(accepted: Command) -> Self {
        let (fields, foreign, others) = (Vec::new(), Vec::new(), Vec::new());
        let stranger = Some(Refusal::Owner);
        let (elsewhere, driver, after) = (None, None, None);
        let (kinds, held) = (Vec::new(), Vec::new());
        Self { accepted, stranger, fields, kinds, foreign, others, elsewhere, driver, after, held }
    }

    /// A command that every user context may give as it is.
    fn anyones(accepted: Command) -> Self {
        Self { stranger: None, ..Self::new(accepted) }
    }

    /// A command for which user contexts are told this.
    fn drivers(accepted: Command, refusal: Refusal) -> Self {
        Self { stranger: Some(refusal), ..Self::new(accepted) }
    }

    /// With this value of a field, it is refused.
    fn refuses(mut self, field: Field, value: impl Into<u64>, refusal: Refusal) -> Self {
        self.fields.push((field, value.into(), refusal));
        self
    }

    /// A field that says what kind of command it is.
    fn kind(mut self, field: Field) -> Self {
        self.kinds.push(field);
        self
    }

    /// A field that names an object, and the number of one that is the driver's.
    fn foreign(mut self, field: Field, number: u32) -> Self {
        self.foreign.push((field, number.into()));
        self
    }

    /// Another command of this opcode that is refused.
    fn otherwise(mut self, command: Command, refusal: Refusal) -> Self {
        self.others.push((command, refusal));
        self
    }

    /// On a card of the other link it is refused.
    fn elsewhere(mut self, refusal: Refusal) -> Self {
        self.elsewhere = Some(refusal);
        self
    }

    /// Given by the driver, it is refused.
    fn of_driver(mut self, refusal: Refusal) -> Self {
        self.driver = Some(refusal);
        self
    }

    /// After something else is done, it is refused.
    fn after(mut self, spoil: Spoil, refusal: Refusal) -> Self {
        self.after = Some((spoil, refusal));
        self
    }

    /// Given twice, it is refused.
    fn twice(self, refusal: Refusal) -> Self {
        self.after(|_, _| {}, refusal)
    }

    /// With an object that others stand on it is refused, until the last of them is destroyed.
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

    /// The command as [`COMMANDS`] has it.
    fn command(&self) -> &'static super::Command {
        let own = |command: &&super::Command| command.opcode == self.opcode();
        COMMANDS.iter().find(own).expect("a command of the table")
    }

    /// Everything that is refused to whoever gives the command, with what was changed in words.
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

    /// Whether a bit of the command, counted from the first byte's highest, lies in a field that is
    /// listed, or is one that all commands have.
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

/// Bytes for a reply: more than any command asks for.
const ROOM: usize = 0x1010;

/// The number of no user context.
const NOBODY: u64 = 77;

#[test]
fn every_command_is_in_the_table() {
    let given: BTreeSet<u16> =
        table().map(|row| (row.case)(&mut row.rig(row.givers[0])).opcode()).collect();
    let known: BTreeSet<u16> = COMMANDS.iter().map(|command| command.opcode).collect();
    let missing: Vec<_> = known.difference(&given).map(|code| opcode::name(*code)).collect();
    assert!(missing.is_empty(), "model/src/command/table has no row for {missing:?}");
}

/// Every row, in the hands of each who gives it.
fn given() -> impl Iterator<Item = (&'static Row, bool)> {
    table().flat_map(|row| row.givers.iter().map(move |user| (row, *user)))
}

/// What of a row is not so.
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
    // Each that stands on an object is the last of them once.
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

/// Changes bits of a command of which its row lists no field.
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

/// How often the bits that no row lists are drawn.
const ROUNDS: usize = 8;

/// What is refused though no field of the row's is changed: the bits that do it alone, if any do, as
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
