//! Encryption of data behind a key, and the layout of a key with the protection of its data.

use mlx5_sys::wqe::{
    BSF_SIZE_INLINE, BSF_SIZE_SHIFT, BSF_SIZE_SIGNATURE_AND_CRYPTO, BSF_TYPE_CRYPTO, CryptoBsf,
    ENCRYPTED_MEMORY_SIGNATURE, ENCRYPTED_RAW_MEMORY, ENCRYPTED_RAW_WIRE, ENCRYPTED_WIRE_SIGNATURE,
    ENCRYPTION_AES_XTS, MKEY_BSF_ENABLE, MKEY_MASK_BSF_ENABLE, MKEY_MASK_SIG_ERR,
    MKEY_SIG_ERR_SHIFT,
};

use super::{BlockSize, Signature};
use crate::wqe::mkey::EncodeLayout;
use crate::wqe::umr::Change;
use crate::wqe::{KeyLayout, PostError, Segment, Segments};

/// The side on which data is encrypted.
///
/// See the example on [`Encryption`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encrypted {
    /// On the wire: memory is plain.
    Wire,
    /// In memory: the wire is plain.
    Memory,
}

/// The encryption of data behind a key: AES-XTS.
///
/// ```
/// use mlx5::wqe::Sge;
/// use mlx5::wqe::unproven::{BlockSize, Encrypted, Encryption, Protected};
///
/// // Memory is encrypted in units of 512 bytes, and plain on the wire. A DEK has the key.
/// let encryption = Encryption {
///     encrypted: Encrypted::Memory,
///     signs_encrypted: false,
///     unit: BlockSize::B512,
///     tweak: [0; 16],
///     dek: 0x123,
///     keytag: [0; 8],
/// };
/// let layout = Protected::encrypted([Sge::new(0x1000, 512, 1)], encryption);
/// assert!(!format!("{layout:?}").contains("keytag")); // a secret
/// ```
#[doc(alias("mlx5dv_wr_set_mkey_crypto", "mlx5dv_crypto_attr"))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encryption {
    /// The encrypted side.
    pub encrypted: Encrypted,
    /// Whether signatures cover the encrypted data, not the plain data.
    pub signs_encrypted: bool,
    /// Size of the units.
    pub unit: BlockSize,
    /// Tweak of the first unit, as the HCA takes it.
    pub tweak: [u8; 16],
    /// Number of the data encryption key, 24 bits.
    pub dek: u32,
    /// The tag that the encryption key must have.
    pub keytag: [u8; 8],
}

impl core::fmt::Debug for Encryption {
    /// Omits the tag, which is a secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encryption")
            .field("encrypted", &self.encrypted)
            .field("unit", &self.unit)
            .field("dek", &self.dek)
            .finish_non_exhaustive()
    }
}

impl Encryption {
    fn bsf(&self, signed: bool) -> CryptoBsf {
        let size = if signed { BSF_SIZE_SIGNATURE_AND_CRYPTO } else { BSF_SIZE_INLINE };
        CryptoBsf {
            size_type: size << BSF_SIZE_SHIFT | BSF_TYPE_CRYPTO,
            enc_order: match (self.encrypted, self.signs_encrypted) {
                (Encrypted::Wire, false) => ENCRYPTED_WIRE_SIGNATURE,
                (Encrypted::Wire, true) => ENCRYPTED_RAW_WIRE,
                (Encrypted::Memory, false) => ENCRYPTED_MEMORY_SIGNATURE,
                (Encrypted::Memory, true) => ENCRYPTED_RAW_MEMORY,
            },
            rsvd0: 0,
            enc_standard: ENCRYPTION_AES_XTS,
            raw_data_size: u32::MAX.into(),
            block_size: self.unit.selector(),
            rsvd1: [0; 7],
            initial_tweak: self.tweak,
            dek: (self.dek & 0xff_ffff).into(),
            rsvd2: [0; 4],
            keytag: self.keytag,
            rsvd3: [0; 16],
        }
    }
}

/// A layout with the protection of its data: signed, encrypted, or both.
///
/// See the examples on [`Signature`] and [`Encryption`].
#[doc(alias = "mlx5dv_wr_set_mkey_sig_block")]
#[derive(Clone, Copy, Debug)]
pub struct Protected<L> {
    layout: L,
    signature: Option<Signature>,
    encryption: Option<Encryption>,
    /// Parity of the signature errors that the key has met so far, if it is to be set.
    errors: Option<bool>,
}

impl<L> Protected<L> {
    /// Signs the data. `errors`: parity of the errors that were reported for the key so far. The
    /// first configuration sets it, to `true`, and those after an error set it again.
    pub const fn signed(layout: L, signature: Signature, errors: Option<bool>) -> Self {
        Self { layout, signature: Some(signature), encryption: None, errors }
    }

    /// Encrypts the data.
    pub const fn encrypted(layout: L, encryption: Encryption) -> Self {
        Self { layout, signature: None, encryption: Some(encryption), errors: None }
    }

    /// Encrypts the data as well.
    pub const fn and_encrypted(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// Returns the size of the formats, in 16-byte units.
    const fn formats_ds(&self) -> u32 {
        4 * (self.signature.is_some() as u32 + self.encryption.is_some() as u32)
    }

    /// Writes the formats.
    ///
    /// # Safety
    /// There is space for [`formats_ds`](Self::formats_ds) segments.
    unsafe fn put_formats<W: Segments>(&self, writer: &mut W) {
        if let Some(signature) = &self.signature {
            let bsf: [Segment; 4] = zerocopy::transmute!(signature.bsf(self.encryption.is_some()));
            // SAFETY: `formats_ds` counts these.
            bsf.into_iter().for_each(|segment| unsafe { writer.put(segment) });
        }
        if let Some(encryption) = &self.encryption {
            let bsf: [Segment; 4] = zerocopy::transmute!(encryption.bsf(self.signature.is_some()));
            // SAFETY: `formats_ds` counts these four as well.
            bsf.into_iter().for_each(|segment| unsafe { writer.put(segment) });
        }
    }
}

impl<L: KeyLayout> KeyLayout for Protected<L> {}

impl<L: KeyLayout> EncodeLayout for Protected<L> {
    const INLINE: bool = L::INLINE;

    fn octowords(&self) -> u32 {
        self.layout.octowords()
    }

    fn ds(&self) -> u32 {
        self.layout.ds() + self.formats_ds()
    }

    fn length(&self) -> Option<u64> {
        self.layout.length()
    }

    fn amend(&self, change: &mut Change) {
        change.bsf_octowords = self.formats_ds() as u16;
        change.mask |= MKEY_MASK_BSF_ENABLE;
        change.flags_pd |= MKEY_BSF_ENABLE;
        if let Some(errors) = self.errors {
            change.mask |= MKEY_MASK_SIG_ERR;
            change.flags_pd |= u32::from(errors) << MKEY_SIG_ERR_SHIFT;
        }
    }

    fn check(&self) -> Result<(), PostError> {
        self.layout.check()
    }

    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: the layout's `check` passed, and there is space for its segments and the formats,
        // which `ds` counts.
        unsafe {
            self.layout.put(writer);
            self.put_formats(writer);
        }
    }
}

#[cfg(test)]
mod tests;
