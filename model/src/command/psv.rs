//! Commands on PSVs, which hold signatures while data passes.

use mlx5_sys::ifc::{create_psv_in, create_psv_out, destroy_psv_in};

use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::Psv;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    /// Fields of the reply for the numbers, in turn.
    const PLACES: [mlx5_sys::ifc::Field; 4] = [
        create_psv_out::PSV0_INDEX,
        create_psv_out::PSV1_INDEX,
        create_psv_out::PSV2_INDEX,
        create_psv_out::PSV3_INDEX,
    ];
    let places = PLACES.get(..get(input, create_psv_in::NUM_PSV) as usize);
    let places = places.filter(|places| !places.is_empty()).ok_or(Refusal::PsvCount)?;
    let pd = get(input, create_psv_in::PD);
    owned(card.objects.pds.get(pd).ok_or(Refusal::NoPd)?.uid, uid(input))?;
    let mut made = Vec::with_capacity(places.len());
    for _ in places {
        let Some(number) = card.objects.psvs.add(Psv { uid: uid(input), pd }) else {
            // All or none.
            for number in made {
                card.objects.psvs.remove(number);
            }
            return Err(Refusal::Exhausted);
        };
        made.push(number);
    }
    for (place, number) in places.iter().zip(made) {
        place.set(output, number.into());
    }
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_psv_in::PSVN);
    owned(card.objects.psvs.get(number).ok_or(Refusal::NoPsv)?.uid, uid(input))?;
    card.objects.psvs.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests;
