#include <infiniband/mlx5dv.h>

/* What src/dv/mod.rs writes by hand, because bindgen cannot: clang checks it here. */
#define AT(type, field, offset, size)                                          \
	_Static_assert(__builtin_offsetof(struct type, field) == (offset) &&   \
			       sizeof(((struct type *)0)->field) == (size),    \
		       #type "." #field)

_Static_assert(sizeof(struct mlx5_wqe_ctrl_seg) == 16, "mlx5_wqe_ctrl_seg");
_Static_assert(_Alignof(struct mlx5_wqe_ctrl_seg) == 4, "mlx5_wqe_ctrl_seg");
AT(mlx5_wqe_ctrl_seg, opmod_idx_opcode, 0, 4);
AT(mlx5_wqe_ctrl_seg, qpn_ds, 4, 4);
AT(mlx5_wqe_ctrl_seg, signature, 8, 1);
AT(mlx5_wqe_ctrl_seg, dci_stream_channel_id, 9, 2);
AT(mlx5_wqe_ctrl_seg, fm_ce_se, 11, 1);
AT(mlx5_wqe_ctrl_seg, imm, 12, 4);

_Static_assert(sizeof(struct ibv_tmh) == 16, "ibv_tmh");
AT(ibv_tmh, opcode, 0, 1);
AT(ibv_tmh, reserved, 1, 3);
AT(ibv_tmh, app_ctx, 4, 4);
AT(ibv_tmh, tag, 8, 8);
