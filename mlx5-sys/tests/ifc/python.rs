//! Asks the structures of rdma-core's Python tests where their fields lie.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::header::Place;

/// The path at which Debian's python3-pyverbs installs the structures.
const INSTALLED: &str = "/usr/share/doc/rdma-core/tests/mlx5_prm_structs.py";
/// The bindings that go with them are built for the distribution's interpreter alone.
const PYTHON: &str = "/usr/bin/python3";

/// Fields that these structures have otherwise than the kernel's header, and why they are not
/// followed: structure, field, reason.
pub const MISTAKEN: &[(&str, &str, &str)] = &[
    ("cmd_hca_cap", "regexp_params", "a flag of older firmware beside the same name"),
    ("cmd_hca_cap", "enhanced_cqe_compression", "rdma-core's own header has Linux's place"),
    ("query_flow_counter_in", "num_of_counters", "Linux has the lower half of it alone"),
];

/// Prints a line for each field: structure, field, first bit, bits.
const SCRIPT: &str = r#"
import gzip, os, re, sys
path = sys.argv[1]
read = open if os.path.exists(path) else gzip.open
with read(path if os.path.exists(path) else path + '.gz', 'rb') as file:
    scope = {}
    exec(compile(file.read(), path, 'exec'), scope)
packet = scope['Packet']

class Unknown(Exception):
    pass

def bits(field):
    kind = type(field).__name__
    if kind == 'BitField':
        return field.size
    if kind == 'StrFixedLenField':
        return 8 * field.length_from(None)
    if kind == 'PacketField':
        return total(field.cls)
    if kind == 'PacketListField':
        return field.count_from(None) * total(field.cls)
    if kind == 'FieldListField':
        return field.count_from(None) * bits(field.field)
    if kind in ('ByteField', 'ShortField', 'IntField', 'LongField', 'MACField', 'IPField', 'IP6Field'):
        return 8 * field.sz
    raise Unknown(kind)

def total(cls):
    return sum(bits(field) for field in cls.fields_desc)

for name, cls in scope.items():
    if not (isinstance(cls, type) and issubclass(cls, packet) and cls is not packet):
        continue
    snake = re.sub(r'(?<!^)(?=[A-Z])', '_', re.sub('^Sw', '', name)).lower()
    at = 0
    try:
        for field in cls.fields_desc:
            width = bits(field)
            if width:  # Lists of open length have none.
                print(snake, field.name, at, width)
            at += width
    except Unknown:
        pass  # What lies behind is not known.
"#;

/// Every structure's fields by name.
///
/// # Panics
/// If the structures, or what they need, are not installed.
pub fn structures() -> BTreeMap<String, BTreeMap<String, Place>> {
    assert!(
        Path::new(INSTALLED).exists() || Path::new(&format!("{INSTALLED}.gz")).exists(),
        "{INSTALLED}(.gz) is missing: run `cargo xtask setup`, or `apt-get install python3-pyverbs \
         python3-scapy` (with dpkg's --path-include=/usr/share/doc/rdma-core/* where documentation \
         is left out)"
    );
    let output = Command::new(PYTHON).args(["-c", SCRIPT, INSTALLED]).output();
    let output = output.unwrap_or_else(|error| panic!("{PYTHON}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python3-scapy may be missing: {errors}");
    let text = String::from_utf8(output.stdout).expect("names and numbers");
    let mut structures: BTreeMap<String, BTreeMap<String, Place>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [structure, field, bit, width] = words[..] else { panic!("{line}") };
        let (bit, width) = (bit.parse().unwrap(), width.parse().unwrap());
        let place = Place { bit, element: width, whole: width };
        structures.entry(structure.to_owned()).or_default().insert(field.to_owned(), place);
    }
    assert!(structures.contains_key("qpc"), "{text}");
    structures
}
