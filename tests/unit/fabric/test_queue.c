/* Queues: how ends, messages and links are told, and what becomes of them when
 * a link goes. */
#include "fixture/fake.h"

#include "fixture/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A wake-up that is lost is a hang: end it long before the runner does. */
static int limit_time(void **state)
{
	(void)state;
	alarm(100);
	return 0;
}

/* --- statuses --- */

static void queue_batch_fail_ends_the_batch(void **state)
{
	struct reef_op ops[4] = {{.status = 0}, {.status = 0}};
	struct reef_batch batch = {.ops = ops, .count = 4};

	(void)state;
	reef_batch_fail(&batch, 1, -REEF_EKEY);
	assert_int_equal(batch.status, -REEF_EKEY);
	assert_int_equal(ops[0].status, 0);
	assert_int_equal(ops[1].status, -REEF_EKEY);
	assert_int_equal(ops[2].status, -REEF_ENOTDONE);
	assert_int_equal(ops[3].status, -REEF_ENOTDONE);
	reef_batch_fail(&batch, 3, -ERANGE);
	assert_int_equal(batch.status, -ERANGE);
	assert_int_equal(ops[3].status, -ERANGE);
	reef_batch_fail_all(&batch, -REEF_EINDOUBT);
	assert_int_equal(batch.status, -REEF_EINDOUBT);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ops[i].status, -REEF_EINDOUBT);
}

static void queue_batch_done_at_once_calls_nobody(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene);
	scene.batch.on_done = (void (*)(struct reef_batch *))abort;
	assert_int_equal(reef_post(scene.queue, &scene.batch), 1);
	assert_true(scene.batch.done);
	assert_int_equal(reef_poll(scene.queue), 0);
	assert_int_equal(reef_wait(scene.queue, &scene.batch), 0);
	scene_close(&scene);
}

/* --- on_done --- */

struct chain {
	struct reef_batch batch;
	struct reef_op op;
	struct reef_queue *queue;
	int *left, *freed;
};

static void chain_done(struct reef_batch *batch)
{
	struct chain *chain = batch->user;

	assert_true(batch->done);
	if ((*chain->left)-- > 0) {
		assert_int_equal(reef_post(chain->queue, batch), 0);
		return;
	}
	(*chain->freed)++;
	free(chain);
}

static void queue_on_done_may_post_and_free(void **state)
{
	int left = 5, freed = 0, polls = 0;
	struct chain *chain;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	scene.fake->late = true;
	for (int i = 0; i < 2; i++) {
		chain = calloc(1, sizeof(*chain));
		assert_non_null(chain);
		chain->op = fake_message();
		chain->queue = scene.queue;
		chain->left = &left;
		chain->freed = &freed;
		chain->batch = (struct reef_batch){
			.link = scene.link,
			.ops = &chain->op,
			.count = 1,
			.on_done = chain_done,
			.user = chain,
		};
		assert_int_equal(reef_post(scene.queue, &chain->batch), 0);
	}
	while (freed < 2) {
		assert_true(reef_poll(scene.queue) > 0);
		assert_true(++polls < 10);
	}
	assert_int_equal(reef_poll(scene.queue), 0);
	scene_close(&scene);
}

/* --- the inbox --- */

static void queue_full_inbox_refuses(void **state)
{
	struct reef_message *message;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			reef_message_arrived(scene.queue, scene.link, "x", 1),
			0);
	assert_int_equal(reef_message_arrived(scene.queue, scene.link, "y", 1),
			 -ENOSPC);
	assert_int_equal(reef_receive(scene.queue, 0, &message), 0);
	assert_int_equal(message->bytes[0], 'x');
	assert_int_equal(message->session, 0x10001);
	reef_message_free(message);
	assert_int_equal(reef_message_arrived(scene.queue, scene.link, NULL, 0),
			 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(reef_receive(scene.queue, 0, &message), 0);
		assert_int_equal(message->length, i < 3 ? 1 : 0);
		reef_message_free(message);
	}
	message = (struct reef_message *)1;
	assert_int_equal(reef_receive(scene.queue, 0, &message), -ETIMEDOUT);
	assert_ptr_equal(message, 1);
	/* What is left goes with the queue. */
	assert_int_equal(reef_message_arrived(scene.queue, scene.link, "z", 1),
			 0);
	scene_close(&scene);
}

/* --- links --- */

struct guests {
	struct fake *fake;
	struct reef_listener *listener;
	struct reef_link *link, *last;
	char heard[64]; /* "+1 -1": opened and closed, by session */
	int step;
};

static void heard(struct guests *guests, char what, uint32_t session)
{
	char text[8];

	snprintf(text, sizeof(text), "%c%u ", what, session);
	strcat(guests->heard, text);
}

static void guest_opened(void *context, struct reef_link *link)
{
	assert_int_equal(reef_link_status(link), 0);
	heard(context, '+', reef_link_session(link));
}

static void guest_closed(void *context, struct reef_link *link, int reason)
{
	assert_true(reason < 0);
	assert_int_equal(reef_link_status(link), reason == -REEF_EFENCED
							 ? -REEF_EFENCED
							 : -REEF_ENOLINK);
	heard(context, '-', reef_link_session(link));
}

static void guests_open(struct guests *guests, struct scene *scene)
{
	memset(guests, 0, sizeof(*guests));
	guests->fake = scene->fake;
	scene->fake->user = guests;
	guests->listener =
		fake_listener(scene->queue, guest_opened, guest_closed, guests);
}

/* Three come at once; the second is gone again in the same poll, then the
 * third, whose place is at the end. */
static int come_and_go(struct fake *fake, struct reef_queue *queue)
{
	struct guests *guests = fake->user;
	struct reef_link *links[3];

	(void)queue;
	if (guests->step++)
		return 0;
	for (uint32_t i = 0; i < 3; i++)
		links[i] = fake_accept(fake, guests->listener, i + 1);
	fake_lose(fake, links[1], -REEF_ENOLINK);
	fake_lose(fake, links[2], -REEF_ENOLINK);
	guests->last = fake_accept(fake, guests->listener, 4);
	guests->link = links[0];
	assert_string_equal(guests->heard, ""); /* not before poll's end */
	return 4;
}

static int first_leaves(struct fake *fake, struct reef_queue *queue)
{
	struct guests *guests = fake->user;

	(void)queue;
	if (!guests->link)
		return 0;
	fake_lose(fake, guests->link, -REEF_EFENCED);
	guests->link = NULL;
	return 1;
}

static void queue_links_are_announced_in_order_or_not_at_all(void **state)
{
	struct guests guests;
	struct reef_link *last;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	guests_open(&guests, &scene);
	scene.fake->on_poll = come_and_go;
	assert_true(reef_poll(scene.queue) > 0);
	assert_string_equal(guests.heard, "+1 +4 ");
	scene.fake->on_poll = first_leaves;
	assert_true(reef_poll(scene.queue) > 0);
	assert_string_equal(guests.heard, "+1 +4 -1 ");
	scene.fake->on_poll = NULL;
	last = fake_accept(scene.fake, guests.listener, 5);
	fake_lose(scene.fake, last, -REEF_ENOLINK);
	reef_poll(scene.queue);
	assert_string_equal(guests.heard, "+1 +4 -1 ");
	fake_lose(scene.fake, guests.last, -REEF_ENOLINK);
	assert_string_equal(guests.heard, "+1 +4 -1 -4 ");
	reef_listener_close(guests.listener);
	scene_close(&scene);
}

static int speak_and_leave(struct fake *fake, struct reef_queue *queue)
{
	struct guests *guests = fake->user;
	struct reef_link *link;

	if (guests->step++)
		return 0;
	link = fake_accept(fake, guests->listener, 7);
	assert_int_equal(reef_message_arrived(queue, link, "bye", 3), 0);
	fake_lose(fake, link, -REEF_ENOLINK);
	return 1;
}

static void queue_messages_outlive_their_link(void **state)
{
	struct reef_message *message;
	struct guests guests;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	guests_open(&guests, &scene);
	scene.fake->on_poll = speak_and_leave;
	/* Accepted, and gone before anybody looked. */
	assert_int_equal(reef_receive(scene.queue, REEF_FOREVER, &message), 0);
	assert_null(message->link);
	assert_int_equal(message->session, 7);
	assert_memory_equal(message->bytes, "bye", 3);
	reef_message_free(message);
	/* Connected, and closed. */
	assert_int_equal(reef_message_arrived(scene.queue, scene.link, "a", 1),
			 0);
	reef_link_close(scene.link);
	assert_int_equal(reef_receive(scene.queue, 0, &message), 0);
	assert_null(message->link);
	reef_message_free(message);
	reef_listener_close(guests.listener);
	assert_int_equal(fake_join(scene.queue, &scene.link), 0);
	scene_close(&scene);
}

/* Another thread brings a message until the moment that the link is gone. */
struct racer {
	struct reef_link *link;
	_Atomic bool gone;
	pthread_mutex_t *lock; /* the provider's */
};

static void *bring_messages(void *arg)
{
	struct racer *racer = arg;

	for (bool gone = false; !gone;) {
		pthread_mutex_lock(racer->lock);
		gone = atomic_load(&racer->gone);
		if (!gone)
			reef_message_arrived(NULL, racer->link, "m", 1);
		pthread_mutex_unlock(racer->lock);
	}
	return NULL;
}

static struct racer *racing;

static void racing_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	pthread_mutex_lock(racing->lock);
	atomic_store(&racing->gone, true);
	pthread_mutex_unlock(racing->lock);
	layer->next->ops.disconnect(layer->next, link);
}

static void queue_message_during_close_forgets_the_link(void **state)
{
	struct reef_layer hook = {
		.ops = {.name = "racing", .disconnect = racing_disconnect}};
	struct fake *fake = fake_open();
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct reef_message *message;
	struct reef_queue *queue;
	pthread_t thread;

	(void)state;
	fake->fabric.options.inbox_max = 1 << 30;
	reef_fabric_push(&fake->fabric, &hook);
	queue = fake_queue(fake);
	for (int i = 0; i < 200; i++) {
		struct racer racer = {.lock = &lock};

		racing = &racer;
		assert_int_equal(fake_join(queue, &racer.link), 0);
		assert_int_equal(
			pthread_create(&thread, NULL, bring_messages, &racer),
			0);
		assert_int_equal(reef_receive(queue, REEF_FOREVER, &message),
				 0);
		reef_message_free(message);
		reef_link_close(racer.link);
		assert_int_equal(pthread_join(thread, NULL), 0);
		while (!reef_receive(queue, 0, &message)) {
			assert_null(message->link);
			reef_message_free(message);
		}
	}
	reef_queue_close(queue);
	reef_fabric_close(&fake->fabric);
}

/* --- a link that goes while somebody waits for room on it --- */

static void queue_run_survives_the_end_of_an_accepted_link(void **state)
{
	struct guests guests;
	struct reef_op op = {.kind = REEF_SEND};
	struct reef_batch batch = {.ops = &op, .count = 1};
	struct scene scene;

	(void)state;
	scene_open(&scene);
	guests_open(&guests, &scene);
	guests.link = fake_accept(scene.fake, guests.listener, 3);
	reef_poll(scene.queue);
	scene.fake->again = 2;
	scene.fake->on_poll = first_leaves;
	batch.link = guests.link;
	assert_int_equal(reef_run(scene.queue, &batch), -REEF_ENOLINK);
	assert_string_equal(guests.heard, "+3 -3 ");
	assert_int_equal(scene.fake->again, 1); /* not tried again */
	scene.fake->again = 0;
	reef_listener_close(guests.listener);
	scene_close(&scene);
}

static int run_one(void *arg)
{
	struct scene *scene = arg;

	return reef_run(scene->queue, &scene->batch);
}

static int attach_one(void *arg)
{
	struct scene *scene = arg;
	struct reef_remote *remote;

	return reef_attach(scene->queue, scene->link, 1, &remote);
}

static int wait_one(void *arg)
{
	struct scene *scene = arg;
	int rc = reef_post(scene->queue, &scene->batch);

	return rc ? rc : reef_wait(scene->queue, &scene->batch);
}

static int close_link(void *arg)
{
	struct scene *scene = arg;

	for (int i = 0; i < 3; i++)
		reef_fiber_yield();
	scene->fake->remotes = 0; /* freed with their link, elsewhere */
	reef_link_close(scene->link);
	scene->link = NULL;
	return 0;
}

static int close_while(int (*body)(void *arg), struct scene *scene)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct reef_fiber *fibers[2];
	int result = 0;

	memset(scene, 0, sizeof(*scene));
	scene->fake = fake_open();
	assert_int_equal(
		reef_queue_open(&scene->fake->fabric, sched, &scene->queue), 0);
	assert_int_equal(fake_join(scene->queue, &scene->link), 0);
	scene->op = fake_message();
	scene->batch = (struct reef_batch){
		.link = scene->link, .ops = &scene->op, .count = 1};
	scene->fake->late = true;
	scene->fake->again = body == run_one ? 1000000 : 0;
	scene->fake->stay_attaching = true;
	assert_int_equal(reef_fiber_spawn(sched, body, scene, &fibers[0]), 0);
	assert_int_equal(reef_fiber_spawn(sched, close_link, scene, &fibers[1]),
			 0);
	run(sched);
	assert_int_equal(reef_fiber_join(fibers[0], &result), 0);
	assert_int_equal(reef_fiber_join(fibers[1], NULL), 0);
	scene_close(scene);
	reef_sched_destroy(sched);
	return result;
}

static void queue_run_survives_the_close_of_its_link(void **state)
{
	struct scene scene;

	(void)state;
	assert_int_equal(close_while(run_one, &scene), -REEF_ENOLINK);
}

/* The fake ends them when the link is closed, like any provider. */
static void queue_wait_survives_the_close_of_its_link(void **state)
{
	struct scene scene;
	int rc;

	(void)state;
	rc = close_while(wait_one, &scene);
	assert_true(rc == 0 || rc == -REEF_EINDOUBT);
}

/* A remote of the fake's is not in its link's care, so it is ours. */
static struct reef_remote *attached;

static int keep_attach(struct reef_layer *layer, struct reef_queue *queue,
		       struct reef_link *link, uint64_t key,
		       struct reef_remote **out)
{
	int rc = layer->next->ops.attach(layer->next, queue, link, key, out);

	attached = *out;
	return rc;
}

static void free_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	free(attached);
	layer->next->ops.disconnect(layer->next, link);
}

static void queue_attach_survives_the_close_of_its_link(void **state)
{
	struct reef_layer hook = {.ops = {.name = "keep",
					  .attach = keep_attach,
					  .disconnect = free_disconnect}};
	struct reef_sched *sched = sched_make(false, NULL);
	struct reef_fiber *fibers[2];
	struct scene scene = {.fake = fake_open()};
	int result = 0;

	(void)state;
	reef_fabric_push(&scene.fake->fabric, &hook);
	assert_int_equal(
		reef_queue_open(&scene.fake->fabric, sched, &scene.queue), 0);
	assert_int_equal(fake_join(scene.queue, &scene.link), 0);
	scene.fake->stay_attaching = true;
	assert_int_equal(
		reef_fiber_spawn(sched, attach_one, &scene, &fibers[0]), 0);
	assert_int_equal(
		reef_fiber_spawn(sched, close_link, &scene, &fibers[1]), 0);
	run(sched);
	assert_int_equal(reef_fiber_join(fibers[0], &result), 0);
	assert_int_equal(reef_fiber_join(fibers[1], NULL), 0);
	assert_int_equal(result, -REEF_ENOLINK);
	assert_int_equal(scene.fake->detaches, 0);
	scene_close(&scene);
	reef_sched_destroy(sched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queue_batch_fail_ends_the_batch),
		cmocka_unit_test(queue_batch_done_at_once_calls_nobody),
		cmocka_unit_test(queue_on_done_may_post_and_free),
		cmocka_unit_test(queue_full_inbox_refuses),
		cmocka_unit_test(
			queue_links_are_announced_in_order_or_not_at_all),
		cmocka_unit_test(queue_messages_outlive_their_link),
		cmocka_unit_test(queue_message_during_close_forgets_the_link),
		cmocka_unit_test(
			queue_run_survives_the_end_of_an_accepted_link),
		cmocka_unit_test(queue_run_survives_the_close_of_its_link),
		cmocka_unit_test(queue_wait_survives_the_close_of_its_link),
		cmocka_unit_test(queue_attach_survives_the_close_of_its_link),
	};

	return cmocka_run_group_tests(tests, limit_time, NULL);
}
