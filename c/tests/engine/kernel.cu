/* The engine's header in a kernel, for a compiler that has no CUDA installed: what cuda_runtime.h would define. */
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __forceinline__ inline __attribute__((always_inline))
__device__ void __threadfence_system(void);
#include "mlx5_engine.h"

__global__ void kernel(const struct mlx5_engine_handles *handles, uint64_t address, uint32_t lkey,
		       uint64_t remote_address, uint32_t rkey, uint32_t *result)
{
	struct mlx5_engine_queue queue;
	*result = 0;
	if (mlx5_engine_queue_init(&queue, handles) != 0)
		return;
	mlx5_engine_put_write(&queue, address, lkey, 64, remote_address, rkey, 0);
	mlx5_engine_put_add(&queue, address + 64, lkey, remote_address + 64, rkey, 1, 1);
	mlx5_engine_ring(&queue);
	do
		*result = mlx5_engine_completed(&queue);
	while (*result == 0);
}
