/* A fabric as a stack of layers: what is left out goes down, in order. */
#include "fixture/fake.h"

#include "base/log.h"

#include <string.h>

/* --- a provider that only writes down who was called --- */

static char calls[256];

static void call(const char *name)
{
	strcat(calls, name);
	strcat(calls, " ");
}

static void bare_close(struct reef_layer *layer)
{
	(void)layer;
	call("close");
}

static int bare_queue_open(struct reef_layer *layer, struct reef_queue **out)
{
	(void)layer;
	(void)out;
	call("queue_open");
	return 1;
}

static void bare_queue_close(struct reef_layer *layer, struct reef_queue *queue)
{
	(void)layer;
	(void)queue;
	call("queue_close");
}

static int bare_post(struct reef_layer *layer, struct reef_queue *queue,
		     struct reef_batch *batch)
{
	(void)layer;
	(void)queue;
	(void)batch;
	call("post");
	return 2;
}

static int bare_poll(struct reef_layer *layer, struct reef_queue *queue)
{
	(void)layer;
	(void)queue;
	call("poll");
	return 3;
}

static int bare_arm(struct reef_layer *layer, struct reef_queue *queue)
{
	(void)layer;
	(void)queue;
	call("arm");
	return 4;
}

static int bare_listen(struct reef_layer *layer, struct reef_queue *queue,
		       const char *address,
		       const struct reef_listen_options *options,
		       struct reef_listener **out)
{
	(void)layer;
	(void)queue;
	(void)options;
	(void)out;
	call(address);
	return 5;
}

static void bare_unlisten(struct reef_layer *layer,
			  struct reef_listener *listener)
{
	(void)layer;
	(void)listener;
	call("unlisten");
}

static int bare_connect(struct reef_layer *layer, struct reef_queue *queue,
			const char *address,
			const struct reef_connect_options *options,
			struct reef_link **out)
{
	(void)layer;
	(void)queue;
	(void)options;
	(void)out;
	call(address);
	return 6;
}

static void bare_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	(void)layer;
	(void)link;
	call("disconnect");
}

static int bare_expose(struct reef_layer *layer, struct reef_memory *memory,
		       struct reef_region **out)
{
	(void)layer;
	(void)memory;
	(void)out;
	call("expose");
	return 7;
}

static int bare_withdraw(struct reef_layer *layer, struct reef_queue *queue,
			 struct reef_region *region)
{
	(void)layer;
	(void)queue;
	(void)region;
	call("withdraw");
	return 8;
}

static int bare_attach(struct reef_layer *layer, struct reef_queue *queue,
		       struct reef_link *link, uint64_t key,
		       struct reef_remote **out)
{
	(void)layer;
	(void)queue;
	(void)link;
	(void)out;
	call("attach");
	return (int)key;
}

static void bare_detach(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_remote *remote)
{
	(void)layer;
	(void)queue;
	(void)remote;
	call("detach");
}

static int bare_buffer_register(struct reef_layer *layer, void *base,
				size_t size, struct reef_buffer **out)
{
	(void)layer;
	(void)base;
	(void)out;
	call("register");
	return (int)size;
}

static void bare_buffer_unregister(struct reef_layer *layer,
				   struct reef_buffer *buffer)
{
	(void)layer;
	(void)buffer;
	call("unregister");
}

static int bare_fence(struct reef_layer *layer, struct reef_queue *queue,
		      uint32_t session)
{
	(void)layer;
	(void)queue;
	call("fence");
	return (int)session;
}

static int bare_end_links(struct reef_layer *layer, struct reef_queue *queue,
			  uint32_t session, uint32_t number)
{
	(void)layer;
	(void)queue;
	call("end_links");
	return (int)(session + number);
}

static const struct reef_fabric_ops bare_ops = {
	.name = "bare",
	.close = bare_close,
	.queue_open = bare_queue_open,
	.queue_close = bare_queue_close,
	.post = bare_post,
	.poll = bare_poll,
	.arm = bare_arm,
	.listen = bare_listen,
	.unlisten = bare_unlisten,
	.connect = bare_connect,
	.disconnect = bare_disconnect,
	.expose = bare_expose,
	.withdraw = bare_withdraw,
	.attach = bare_attach,
	.detach = bare_detach,
	.buffer_register = bare_buffer_register,
	.buffer_unregister = bare_buffer_unregister,
	.fence = bare_fence,
	.end_links = bare_end_links,
};

static void bare_open(struct reef_fabric *fabric)
{
	memset(fabric, 0, sizeof(*fabric));
	fabric->provider.ops = bare_ops;
	fabric->provider.fabric = fabric;
	fabric->top = &fabric->provider;
	reef_layer_fill(&fabric->provider);
	calls[0] = 0;
}

static void layer_absent_members_go_down(void **state)
{
	struct reef_layer first = {.ops.name = "first"};
	struct reef_layer second = {.ops.name = "second"};
	struct reef_fabric fabric;
	struct reef_layer *top;
	const struct reef_fabric_ops *ops;

	(void)state;
	bare_open(&fabric);
	reef_fabric_push(&fabric, &first);
	reef_fabric_push(&fabric, &second);
	top = fabric.top;
	ops = &top->ops;
	assert_ptr_equal(top, &second);
	assert_ptr_equal(top->next, &first);
	assert_ptr_equal(first.fabric, &fabric);
	assert_int_equal(ops->queue_open(top, NULL), 1);
	assert_int_equal(ops->post(top, NULL, NULL), 2);
	assert_int_equal(ops->poll(top, NULL), 3);
	assert_int_equal(ops->arm(top, NULL), 4);
	assert_int_equal(ops->listen(top, NULL, "listen", NULL, NULL), 5);
	assert_int_equal(ops->connect(top, NULL, "connect", NULL, NULL), 6);
	assert_int_equal(ops->expose(top, NULL, NULL), 7);
	assert_int_equal(ops->withdraw(top, NULL, NULL), 8);
	assert_int_equal(ops->attach(top, NULL, NULL, 9, NULL), 9);
	assert_int_equal(ops->buffer_register(top, NULL, 10, NULL), 10);
	assert_int_equal(ops->fence(top, NULL, 11), 11);
	assert_int_equal(ops->end_links(top, NULL, 5, 7), 12);
	assert_string_equal(calls, "queue_open post poll arm listen connect "
				   "expose withdraw attach register fence "
				   "end_links ");
	calls[0] = 0;
	ops->detach(top, NULL, NULL);
	ops->disconnect(top, NULL);
	ops->unlisten(top, NULL);
	ops->buffer_unregister(top, NULL);
	ops->queue_close(top, NULL);
	ops->close(top);
	assert_string_equal(calls, "detach disconnect unlisten unregister "
				   "queue_close close ");
}

/* --- hooks that say who they are --- */

static int named_post(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_batch *batch)
{
	call(layer->ops.name);
	return layer->next->ops.post(layer->next, queue, batch);
}

static void named_close(struct reef_layer *layer)
{
	struct reef_layer *next = layer->next;

	call(layer->ops.name);
	layer->ops.name = "used after close";
	next->ops.close(next);
}

static void layer_hooks_stack_in_order(void **state)
{
	struct reef_layer inner = {.ops = {.name = "inner",
					   .post = named_post,
					   .close = named_close}};
	struct reef_layer none = {.ops.name = "none"};
	struct reef_layer outer = {.ops = {.name = "outer",
					   .post = named_post,
					   .close = named_close}};
	struct reef_queue queue = {0};
	struct reef_batch batch = {0};
	struct reef_fabric fabric;

	(void)state;
	bare_open(&fabric);
	fabric.fork_generation = reef_fork_generation();
	queue.fabric = &fabric;
	reef_fabric_push(&fabric, &inner);
	reef_fabric_push(&fabric, &none);
	reef_fabric_push(&fabric, &outer);
	assert_int_equal(reef_post(&queue, &batch), 2);
	reef_fabric_close(&fabric);
	assert_string_equal(calls, "outer inner post outer inner close ");
}

/* --- what a provider may leave out --- */

static void layer_absent_buffers_mean_nothing(void **state)
{
	struct fake *fake = fake_open();
	struct reef_layer hook = {.ops.name = "hook"};
	uint8_t bytes[64];
	struct reef_buffer *buffer;

	(void)state;
	reef_fabric_push(&fake->fabric, &hook);
	assert_int_equal(reef_buffer_register(&fake->fabric, bytes,
					      sizeof(bytes), &buffer),
			 0);
	assert_ptr_equal(buffer->base, bytes);
	assert_int_equal(buffer->size, sizeof(bytes));
	assert_ptr_equal(buffer->fabric, &fake->fabric);
	reef_buffer_unregister(buffer);
	reef_fabric_close(&fake->fabric);
}

static void layer_absent_arm_is_0(void **state)
{
	struct reef_fabric fabric;

	(void)state;
	bare_open(&fabric);
	fabric.provider.ops.arm = NULL;
	reef_layer_fill(&fabric.provider);
	assert_int_equal(fabric.top->ops.arm(fabric.top, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layer_absent_members_go_down),
		cmocka_unit_test(layer_hooks_stack_in_order),
		cmocka_unit_test(layer_absent_buffers_mean_nothing),
		cmocka_unit_test(layer_absent_arm_is_0),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
