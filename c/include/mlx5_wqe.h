/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * WQEs and CQEs of ConnectX devices as 64-bit words, and the order of the stores that post them.
 *
 * Functions here only compute, load and store. They know no queue: mlx5_ring.h and mlx5_engine.h build on them.
 * For C11, C++17, CUDA and HIP. It includes nothing of libibverbs.
 *
 * Words are in the byte order of the ring: the first byte in memory is the lowest byte of a word on a little-endian
 * machine, which the header requires.
 */
#ifndef MLX5_WQE_H
#define MLX5_WQE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Before each function. */
#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIPCC__) || defined(__HIP__)
#define MLX5_FN static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define MLX5_FN static inline __attribute__((always_inline, unused))
#else
#error "mlx5_wqe.h needs gcc, clang, nvcc or hipcc"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "mlx5_wqe.h needs a little-endian machine"
#endif

enum {
	MLX5_WQE_BLOCK = 64, /* bytes: a WQE begins at a multiple */
	MLX5_WQE_UNIT = 16   /* bytes: the unit of a WQE's size */
};

/* Opcodes of WQEs. */
enum {
	MLX5_WQE_NOP = 0x00,
	MLX5_WQE_WRITE = 0x08,
	MLX5_WQE_SEND = 0x0a,
	MLX5_WQE_FETCH_ADD = 0x12
};

/* Opcodes of CQEs. */
enum {
	MLX5_CQE_OP_REQUEST = 0,
	MLX5_CQE_OP_RECEIVE_FIRST = 1, /* WRITE with immediate, SEND, SEND with immediate, SEND with invalidate */
	MLX5_CQE_OP_RECEIVE_LAST = 4,
	MLX5_CQE_OP_REQUEST_ERROR = 13,
	MLX5_CQE_OP_RECEIVE_ERROR = 14,
	MLX5_CQE_OP_NONE = 15
};

MLX5_FN uint16_t mlx5_swap16(uint16_t value)
{
	return (uint16_t)(value << 8 | value >> 8);
}

MLX5_FN uint32_t mlx5_swap32(uint32_t value)
{
	return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}

MLX5_FN uint64_t mlx5_swap64(uint64_t value)
{
	return (uint64_t)mlx5_swap32((uint32_t)value) << 32 | mlx5_swap32((uint32_t)(value >> 32));
}

/* ---- Words of WQEs ------------------------------------------------------------------------------ */

/* The number of a queue pair, as words 0 have it. */
MLX5_FN uint64_t mlx5_wqe_qpn(uint32_t qpn)
{
	return (uint64_t)mlx5_swap32(qpn << 8) << 32;
}

/* Words 0 and 1 are the control segment. qpn: of mlx5_wqe_qpn(). size: of the WQE, in units. Word 0 is also what rings
 * the doorbell. */
MLX5_FN uint64_t mlx5_wqe_control(uint32_t opcode, uint32_t index, uint64_t qpn, uint32_t size)
{
	return qpn | (uint64_t)size << 56 | mlx5_swap32((index & 0xffff) << 8 | opcode);
}

/* flags: MLX5_SIGNALED 1, MLX5_FENCED 2, MLX5_SOLICITED 4 of mlx5.h. */
MLX5_FN uint64_t mlx5_wqe_control_flags(uint32_t flags, uint32_t immediate)
{
	uint32_t bits = (flags & 1) << 3 | (flags & 2) << 6 | (flags & 4) >> 1;
	return (uint64_t)mlx5_swap32(immediate) << 32 | (uint64_t)bits << 24;
}

/* The first word of the Ethernet segment; the second is 0. flags: MLX5_CHECKSUMS 16 of mlx5.h. */
MLX5_FN uint64_t mlx5_wqe_ethernet(uint32_t flags)
{
	return (flags & 16) != 0 ? (uint64_t)0xc0 << 32 : 0;
}

/* The remote address segment: its address, then its key. */
MLX5_FN uint64_t mlx5_wqe_remote_key(uint32_t rkey)
{
	return mlx5_swap32(rkey);
}

/* The data segment: length and key, then mlx5_swap64(address). length has 31 bits. */
MLX5_FN uint64_t mlx5_wqe_data(uint32_t length, uint32_t lkey)
{
	return (uint64_t)mlx5_swap32(lkey) << 32 | mlx5_swap32(length);
}

/* ---- Order -------------------------------------------------------------------------------------- */

/* The fences that stand between two steps of a post or a poll. Each is named by what it keeps in order. */
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
MLX5_FN void mlx5_fence_wqe_then_record(void) { __threadfence_system(); }
MLX5_FN void mlx5_fence_record_then_register(void) { __threadfence_system(); }
MLX5_FN void mlx5_fence_flush_register(void) { __threadfence_system(); }
MLX5_FN void mlx5_fence_owner_then_cqe(void) { __threadfence_system(); }
MLX5_FN void mlx5_fence_cqe_then_record(void) { __threadfence_system(); }
#elif defined(__x86_64__)
/* Rings and records are write-back memory, whose stores and loads keep their order. A register is write-combining. */
MLX5_FN void mlx5_fence_wqe_then_record(void) { __asm__ volatile("" ::: "memory"); }
MLX5_FN void mlx5_fence_record_then_register(void) { __asm__ volatile("sfence" ::: "memory"); }
MLX5_FN void mlx5_fence_flush_register(void) { __asm__ volatile("sfence" ::: "memory"); }
MLX5_FN void mlx5_fence_owner_then_cqe(void) { __asm__ volatile("" ::: "memory"); }
MLX5_FN void mlx5_fence_cqe_then_record(void) { __asm__ volatile("" ::: "memory"); }
#elif defined(__aarch64__)
MLX5_FN void mlx5_fence_wqe_then_record(void) { __asm__ volatile("dmb oshst" ::: "memory"); }
MLX5_FN void mlx5_fence_record_then_register(void) { __asm__ volatile("dmb oshst" ::: "memory"); }
MLX5_FN void mlx5_fence_flush_register(void) { __asm__ volatile("dsb st" ::: "memory"); }
MLX5_FN void mlx5_fence_owner_then_cqe(void) { __asm__ volatile("dmb oshld" ::: "memory"); }
MLX5_FN void mlx5_fence_cqe_then_record(void) { __asm__ volatile("dmb osh" ::: "memory"); }
#else
#error "mlx5_wqe.h knows the fences of x86-64, arm64, CUDA and HIP"
#endif

/* ---- Loads and stores --------------------------------------------------------------------------- */

/* Each is one access, which the compiler neither splits nor leaves out. */
MLX5_FN void mlx5_store64(void *to, uint64_t value) { *(volatile uint64_t *)to = value; }
MLX5_FN void mlx5_store32(void *to, uint32_t value) { *(volatile uint32_t *)to = value; }
MLX5_FN uint64_t mlx5_load64(const void *from) { return *(const volatile uint64_t *)from; }
MLX5_FN uint32_t mlx5_load32(const void *from) { return *(const volatile uint32_t *)from; }
MLX5_FN uint16_t mlx5_load16(const void *from) { return *(const volatile uint16_t *)from; }
MLX5_FN uint8_t mlx5_load8(const void *from) { return *(const volatile uint8_t *)from; }

/* Hides from the compiler what a pointer points to. Else it warns of accesses that a run-time length excludes. */
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define MLX5_HIDE(pointer) ((void)0)
#else
#define MLX5_HIDE(pointer) __asm__("" : "+r"(pointer))
#endif

/* Returns the bytes of data from offset to its end, at most 8, as a word. No other byte is read. */
MLX5_FN uint64_t mlx5_wqe_piece(const void *data, uint32_t length, uint32_t offset)
{
	const uint8_t *from = (const uint8_t *)data;
	uint32_t left = length > offset ? length - offset : 0;
	uint64_t word;
	uint32_t low, high;
	uint16_t low16, high16;
	if (!__builtin_constant_p(length))
		MLX5_HIDE(from);
	from += left != 0 ? offset : 0;
	if (left >= 8) {
		memcpy(&word, from, 8);
		return word;
	}
	/* Two loads that overlap cover every length. */
	if (left >= 4) {
		memcpy(&low, from, 4);
		memcpy(&high, from + left - 4, 4);
		return low | (uint64_t)high << 8 * (left - 4);
	}
	if (left >= 2) {
		memcpy(&low16, from, 2);
		memcpy(&high16, from + left - 2, 2);
		return low16 | (uint64_t)high16 << 8 * (left - 2);
	}
	return left != 0 ? *from : 0;
}

/* Returns the word that begins an inline segment: its length, and the first 4 bytes of data. */
MLX5_FN uint64_t mlx5_wqe_inline(const void *data, uint32_t length)
{
	uint64_t first = mlx5_wqe_piece(data, length < 4 ? length : 4, 0);
	return first << 32 | mlx5_swap32(0x80000000u | length);
}

/* Returns the units of an inline segment. Without bytes there is none. */
MLX5_FN uint32_t mlx5_wqe_inline_size(uint32_t length)
{
	return length != 0 ? (length + 4 + 15) / MLX5_WQE_UNIT : 0;
}

/* ---- CQEs --------------------------------------------------------------------------------------- */

/* Of the last 64 bytes of a CQE. */
MLX5_FN uint32_t mlx5_cqe_opcode(const void *cqe) { return mlx5_load8((const uint8_t *)cqe + 63) >> 4; }
MLX5_FN uint32_t mlx5_cqe_qpn(const void *cqe)
{
	return mlx5_swap32(mlx5_load32((const uint8_t *)cqe + 56)) & 0xffffff;
}
/* The WQE's index: of a request, in blocks; of a receive, in WQEs. */
MLX5_FN uint16_t mlx5_cqe_wqe_index(const void *cqe)
{
	return mlx5_swap16(mlx5_load16((const uint8_t *)cqe + 60));
}
MLX5_FN uint32_t mlx5_cqe_byte_len(const void *cqe)
{
	return mlx5_swap32(mlx5_load32((const uint8_t *)cqe + 44));
}
/* In host byte order. */
MLX5_FN uint32_t mlx5_cqe_immediate(const void *cqe)
{
	return mlx5_swap32(mlx5_load32((const uint8_t *)cqe + 36));
}
/* Of MLX5_CQE_OP_REQUEST_ERROR and MLX5_CQE_OP_RECEIVE_ERROR. */
MLX5_FN uint8_t mlx5_cqe_syndrome(const void *cqe) { return mlx5_load8((const uint8_t *)cqe + 55); }
MLX5_FN uint8_t mlx5_cqe_vendor_syndrome(const void *cqe) { return mlx5_load8((const uint8_t *)cqe + 54); }

#endif
