//! The steps that both sides of a connection take.

use mlx5::connect::cm::{ConnectionParameters, Established, Identifier, KnowsPeer, OnDevice};
use mlx5::ib::Rc;
use mlx5::verbs::attr::{AddressVector, Mtu};
use mlx5::verbs::{Init, QueuePair, Rts};

use crate::outcome::{Error, Result};
use crate::perf::plan::{Header, Plan, Retransmission};
use crate::perf::station::{Endpoint, Side};

/// Checks that this build has rdma_cm, as it does.
///
/// # Errors
/// None.
pub fn check_build() -> Result<()> {
    Ok(())
}

/// The connections of a point. Dropping them disconnects.
#[derive(Debug, Default)]
pub struct Connections(Vec<Identifier<Rc, Established>>);

impl Connections {
    pub(super) fn add(&mut self, connection: Identifier<Rc, Established>) {
        self.0.push(connection);
    }

    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Adds to an error which connection of the measurement it is about.
pub(super) fn of_connection(number: u64) -> impl FnOnce(Error) -> Error {
    move |error| Error::Told(format!("rdma_cm: connection {number} of the measurement: {error}"))
}

/// Checks that the address of a connection belongs to the side's port.
///
/// # Errors
/// Returns both ports, and how to choose the other.
pub(super) fn same_port<S: OnDevice>(id: &Identifier<Rc, S>, side: &Side) -> Result<()> {
    let (device, port) = (side.context.name(), side.port.attributes().port);
    if (id.device().as_str(), id.port()) == (device.as_str(), port) {
        return Ok(());
    }
    let address = id.local_address().map_or_else(String::new, |address| address.ip().to_string());
    Err(Error::Told(format!(
        "the address {address} of this side belongs to {} port {}, and {device} port {port} is \
         measured: give --device {0} --ib-port {1} to this side, or another HOST to the client",
        id.device(),
        id.port(),
    )))
}

/// Checks that the peer connects the queue pair that it told over TCP.
///
/// # Errors
/// Returns both numbers.
pub(super) fn same_queue_pair(qpn: u32, theirs: &Endpoint) -> Result<()> {
    let told = theirs.data.qpn;
    if qpn == told {
        return Ok(());
    }
    Err(Error::Told(format!("the peer connects queue pair {qpn:#x}, and told of {told:#x}")))
}

/// Returns what a side tells the other: private data, and the plan's retransmissions.
pub(super) fn parameters<'a>(plan: &Plan, private_data: &'a [u8]) -> ConnectionParameters<'a> {
    let Retransmission { retries, rnr_retries, .. } = plan.retransmission;
    let default = ConnectionParameters::default();
    ConnectionParameters {
        private_data,
        retry_count: retries.unwrap_or(default.retry_count),
        rnr_retry_count: rnr_retries.unwrap_or(default.rnr_retry_count),
        ..default
    }
}

/// Moves a queue pair to RTS, by rdma_cm's attributes and the plan's.
pub(super) fn ready<S: KnowsPeer>(
    qp: QueuePair<Rc, Init>,
    id: &Identifier<Rc, S>,
    plan: &Plan,
) -> Result<QueuePair<Rc, Rts>> {
    let mut rtr = id.rtr()?;
    if let Some(mtu) = plan.mtu {
        rtr.path_mtu = rtr.path_mtu.min(Mtu::from_bytes(mtu.into())?);
    }
    mark(plan, &mut rtr.address)?;
    let qp = qp.rtr(&rtr).map_err(|failed| failed.error)?;
    let mut rts = id.rts()?;
    plan.retransmission.choose(&mut rts)?;
    Ok(qp.rts(&rts).map_err(|failed| failed.error)?)
}

/// Sets the fields of an address that the plan chooses. The others are rdma_cm's.
fn mark(plan: &Plan, address: &mut AddressVector) -> Result<()> {
    if plan.service_level != 0 {
        address.service_level = plan.service_level;
    }
    let Header { traffic_class, hop_limit } = plan.header;
    match address.global.as_mut() {
        Some(route) => {
            route.traffic_class = traffic_class.unwrap_or(route.traffic_class);
            route.hop_limit = hop_limit.unwrap_or(route.hop_limit);
        }
        None if hop_limit.is_some() => {
            return Err(Error::Told(
                "--hop-limit is a field of a GRH, and rdma_cm found a path without one: leave it \
                 out"
                .to_owned(),
            ));
        }
        // The subnet manager was asked for a path of that class.
        None => {}
    }
    Ok(())
}
