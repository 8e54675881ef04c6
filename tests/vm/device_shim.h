/* device_shim.h - soft-RoCE that treats completions as other devices do.
 *
 * A library that keeps its completion queues in its own memory (mlx5's) takes
 * the completions of a queue pair out of them when that is destroyed. Soft-RoCE
 * leaves them; with this between, it does not.
 *
 * Thread: open, one; what it stands for, any. */
#ifndef REEF_TESTS_VM_DEVICE_SHIM_H
#define REEF_TESTS_VM_DEVICE_SHIM_H

#include "fabric/fabric.h"

/* Stand between a fabric of verbs and its device, before it has a queue. */
void device_shim_open(struct reef_fabric *fabric);

#endif
