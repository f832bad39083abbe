//! Commands on PSVs: where signatures are kept while data passes.

use mlx5_sys::ifc::{create_psv_in, create_psv_out, destroy_psv_in};

use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::Psv;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    /// Where the reply has their numbers, in turn.
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
mod tests {
    use mlx5_sys::ifc::{alloc_pd_out, create_uctx_out, dealloc_pd_in, opcode};

    use super::super::UID;
    use super::super::test::{Command, Rig};
    use super::*;

    #[test]
    fn psvs_are_made_together_and_go_one_by_one() {
        let mut rig = Rig::new();
        let user = Command::new(opcode::CREATE_UCTX, 0x40);
        let [user, other] = [0; 2].map(|_| rig.number(&user, create_uctx_out::UID));
        let pd = rig.number(&Command::new(opcode::ALLOC_PD, 0x10).set(UID, user), alloc_pd_out::PD);
        let create = Command::new(opcode::CREATE_PSV, 0x10)
            .set(UID, user)
            .set(create_psv_in::NUM_PSV, 3u64)
            .set(create_psv_in::PD, pd);
        rig.refuses(
            &create,
            &[
                (create_psv_in::NUM_PSV, 0, Refusal::PsvCount),
                (create_psv_in::NUM_PSV, 5, Refusal::PsvCount),
                (create_psv_in::PD, 1, Refusal::NoPd),
                (create_psv_in::PD, rig.pd.into(), Refusal::Owner),
            ],
        );
        let reply = rig.run(&create).unwrap();
        let made = [create_psv_out::PSV0_INDEX, create_psv_out::PSV1_INDEX]
            .map(|place| place.get(&reply) as u32);
        assert_eq!(made[1], made[0] + 1);
        assert_eq!(create_psv_out::PSV3_INDEX.get(&reply), 0);
        let destroy = |by: u32, number: u32| {
            Command::new(opcode::DESTROY_PSV, 0x10).set(UID, by).set(destroy_psv_in::PSVN, number)
        };
        let free = Command::new(opcode::DEALLOC_PD, 0x10).set(UID, user).set(dealloc_pd_in::PD, pd);
        assert_eq!(rig.run(&free).err(), Some(Refusal::PdBusy));
        assert_eq!(rig.run(&destroy(other, made[0])).err(), Some(Refusal::Owner));
        for number in made[0]..made[0] + 3 {
            rig.run(&destroy(user, number)).unwrap();
            assert_eq!(rig.run(&destroy(user, number)).err(), Some(Refusal::NoPsv));
        }
        rig.run(&free).unwrap();
    }
}
