/* An engine: it knows of its queue what the handles say, and posts by mlx5_engine.h. Also valid C++17. */
#include "mlx5_engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that the engine names in requests. */
struct engine_memory {
	uint64_t address;
	uint64_t remote_address;
	uint64_t old;      /* where the old values of the counter go */
	uint64_t counter;  /* of the peer, which says how many WRITEs are there */
	uint32_t lkey;
	uint32_t rkey;
};

uint32_t engine_run(const struct mlx5_engine_handles *handles, const struct engine_memory *memory, uint32_t rounds);
uint32_t engine_fail(const struct mlx5_engine_handles *handles, const struct engine_memory *memory);

/* Waits until so many blocks are complete, or a request failed. */
static uint32_t wait_for(struct mlx5_engine_queue *queue, uint32_t blocks)
{
	uint32_t completed;
	do
		completed = mlx5_engine_completed(queue);
	while (completed != MLX5_ENGINE_FAILED && completed != (blocks & 0xffff));
	return completed;
}

/* Writes a number to the peer, and adds 1 to its counter, so many times. Returns how many rounds completed. */
uint32_t engine_run(const struct mlx5_engine_handles *handles, const struct engine_memory *memory, uint32_t rounds)
{
	struct mlx5_engine_queue queue;
	uint32_t round;
	if (mlx5_engine_queue_init(&queue, handles) != 0)
		return 0;
	for (round = 0; round < rounds; round++) {
		mlx5_store64((void *)(uintptr_t)memory->address, round + 1000);
		mlx5_engine_put_write(&queue, memory->address, memory->lkey, 8, memory->remote_address, memory->rkey, 0);
		mlx5_engine_put_add(&queue, memory->old, memory->lkey, memory->counter, memory->rkey, 1, 1);
		mlx5_engine_ring(&queue);
		if (wait_for(&queue, 2 * (round + 1)) == MLX5_ENGINE_FAILED)
			break;
	}
	return round;
}

/* Posts a WRITE with a wrong key. Returns what the engine is told. */
uint32_t engine_fail(const struct mlx5_engine_handles *handles, const struct engine_memory *memory)
{
	struct mlx5_engine_queue queue;
	if (mlx5_engine_queue_init(&queue, handles) != 0)
		return 0;
	mlx5_engine_put_write(&queue, memory->address, memory->lkey, 8, memory->remote_address, memory->rkey + 0x100, 1);
	mlx5_engine_ring(&queue);
	return wait_for(&queue, 1);
}

#ifdef __cplusplus
}
#endif
