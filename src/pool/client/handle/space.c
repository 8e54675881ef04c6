/* space.c - spaces of a handle, and the blocks in them. */
#include "pool/client/handle/space.h"

#include "pool/client/handle/call.h"
#include "pool/client/handle/recover.h"
#include "pool/client/keeper/job.h"
#include "pool/client/keeper/renew.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MAX_SIZE 255

/* --- opening --- */

int client_space_attach(struct reef *reef, struct client_space *known,
			struct reef_space **out)
{
	struct reef_space *space = calloc(1, sizeof(*space));

	if (!space) {
		pthread_mutex_lock(&reef->client->lock);
		known->refs--;
		pthread_mutex_unlock(&reef->client->lock);
		return -ENOMEM;
	}
	space->reef = reef;
	space->space = known;
	space->next = reef->spaces;
	reef->spaces = space;
	*out = space;
	return 0;
}

/* One that this process has open already; takes a reference. */
static struct client_space *find_open(struct reef_client *client,
				      const char *name, const char *token)
{
	struct client_space *space;

	pthread_mutex_lock(&client->lock);
	for (space = client->spaces; space; space = space->next)
		if (!space->gone && !space->scratch &&
		    !strcmp(space->name, name) && !strcmp(space->token, token))
			break;
	if (space)
		space->refs++;
	pthread_mutex_unlock(&client->lock);
	return space;
}

static int check_name(const char *name)
{
	size_t size = strlen(name);

	if (!size)
		return -EINVAL;
	return size > NAME_MAX_SIZE ? -ENAMETOOLONG : 0;
}

static int space_job(const char *name, const struct reef_space_options *options,
		     struct client_job **out)
{
	struct client_job *job = client_job_create(client_space_open_job);
	uint32_t flags = options ? options->flags : 0;
	int rc = 0;

	if (!job)
		return -ENOMEM;
	job->body.kind = name ? REEF_SPACE_SHARED : REEF_SPACE_SCRATCH;
	job->body.keeping = flags & REEF_SPACE_REVOCABLE
				    ? REEF_KEEPING_REVOCABLE
				    : REEF_KEEPING_KEPT;
	job->body.size = options ? options->quota : 0;
	if (!name || flags & REEF_SPACE_CREATE)
		job->body.flags |= REEF_POOL_CREATE;
	if (flags & REEF_SPACE_EXCLUSIVE)
		job->body.flags |= REEF_POOL_EXCLUSIVE;
	if (name) {
		job->texts[0] = strdup(name);
		if (!job->texts[0])
			rc = -ENOMEM;
		else
			job->body.name = (struct reef_text){
				job->texts[0], (uint16_t)strlen(name)};
	}
	if (!rc && options && options->token) {
		job->texts[1] = strdup(options->token);
		rc = job->texts[1]
			     ? client_fill_token(options->token, &job->body)
			     : -ENOMEM;
	}
	if (rc) {
		client_job_destroy(job);
		return rc;
	}
	*out = job;
	return 0;
}

int reef_space_open(struct reef *reef, const char *name,
		    const struct reef_space_options *options,
		    struct reef_space **out)
{
	const char *token = options && options->token ? options->token : "";
	uint32_t flags = options ? options->flags : 0;
	struct client_space *known = NULL;
	struct client_job *job;
	int rc;

	rc = client_handle_check(reef);
	if (!rc && name)
		rc = check_name(name);
	if (!rc &&
	    flags & ~(uint32_t)(REEF_SPACE_CREATE | REEF_SPACE_EXCLUSIVE |
				REEF_SPACE_REVOCABLE))
		rc = -EINVAL;
	if (rc)
		return rc;
	if (name && !(flags & REEF_SPACE_EXCLUSIVE))
		known = find_open(reef->client, name, token);
	if (known)
		return client_space_attach(reef, known, out);
	rc = space_job(name, options, &job);
	if (rc)
		return rc;
	rc = client_job_run(reef, job);
	if (!rc)
		rc = client_space_attach(reef, job->space, out);
	client_job_unref(job);
	return rc;
}

static uint32_t idle_heaps(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	const struct client_heap *heap;
	uint32_t count = 0;

	pthread_mutex_lock(&client->lock);
	for (heap = space->space->heaps; heap; heap = heap->next)
		count++;
	pthread_mutex_unlock(&client->lock);
	return count;
}

/* Give the memory back that nothing is in. The last one to close a space in
 * this process does so for all heaps: what it left would be in the way until
 * somebody recovers this session, and reusable only a while after that. */
static void give_back(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	uint32_t left = idle_heaps(space);
	bool last;

	pthread_mutex_lock(&client->lock);
	last = space->space->refs == 1;
	pthread_mutex_unlock(&client->lock);
	client_heap_put(space, last);
	while (last && left-- && !client_heap_get(space))
		client_heap_put(space, true);
}

void reef_space_close(struct reef_space *space)
{
	struct client_job *job = NULL;
	struct reef_client *client;
	struct reef_space **at;

	if (!space || client_is_forked(space->reef))
		return;
	client = space->reef->client;
	if (space->heap)
		space->heap->idle = 0;
	give_back(space);
	for (at = &space->reef->spaces; *at != space; at = &(*at)->next)
		;
	*at = space->next;
	/* Without memory for the job it stays until the session ends. */
	if (space->space->scratch || space->space->gone)
		job = client_job_create(client_space_close_job);
	if (job) {
		job->space = space->space;
		client_job_start(client, NULL, job);
		client_job_unref(job);
	} else {
		pthread_mutex_lock(&client->lock);
		space->space->refs--;
		pthread_mutex_unlock(&client->lock);
	}
	free(space->bases);
	free(space);
}

int reef_space_drop(struct reef *reef, const char *name)
{
	struct client_space *known;
	struct client_job *job;
	int rc;

	rc = client_handle_check(reef);
	if (!rc)
		rc = name ? check_name(name) : -EINVAL;
	if (!rc)
		rc = space_job(name, NULL, &job);
	if (rc)
		return rc;
	job->run = client_space_drop_job;
	pthread_mutex_lock(&reef->client->lock);
	for (known = reef->client->spaces; known; known = known->next)
		if (!known->gone && !strcmp(known->name, name))
			job->body.space = known->id;
	pthread_mutex_unlock(&reef->client->lock);
	rc = client_job_run(reef, job);
	client_job_unref(job);
	return rc;
}

/* --- listing --- */

static void fill_info(struct reef_space_info *info, const struct reef_row *row)
{
	size_t size = row->name.size;

	*info = (struct reef_space_info){
		.id = row->space,
		.scratch = row->kind == REEF_SPACE_SCRATCH,
		.revocable = row->keeping == REEF_KEEPING_REVOCABLE,
		.quota = row->size,
		.used = row->used,
		.extents = row->count,
	};
	if (size >= sizeof(info->name))
		size = sizeof(info->name) - 1;
	if (size)
		memcpy(info->name, row->name.bytes, size);
}

int reef_space_list(struct reef *reef,
		    int (*each)(void *context,
				const struct reef_space_info *info),
		    void *context)
{
	struct reef_body body = {.kind = REEF_ROW_SPACE};
	struct reef_answer answer = {0};
	struct reef_space_info info;
	struct reef_cursor_in in;
	struct reef_row row;
	uint32_t before;
	bool more;
	int rc;

	rc = client_handle_check(reef);
	if (rc)
		return rc;
	do {
		before = body.node;
		rc = reef_client_ask(reef, REEF_POOL_LIST, false, &body,
				     &answer);
		if (rc)
			return rc;
		in = (struct reef_cursor_in){
			.bytes = answer.body.rows,
			.left = answer.body.rows_size,
		};
		while (!rc && (rc = reef_row_decode(&in, &row)) == 1) {
			rc = 0;
			if (row.row != REEF_ROW_SPACE)
				continue;
			body.node = row.space;
			fill_info(&info, &row);
			rc = each(context, &info);
			if (rc)
				break;
		}
		/* One that goes round in circles is not listened to. */
		more = answer.body.flags & REEF_POOL_MORE && body.node > before;
		reef_answer_free(&answer);
	} while (!rc && more);
	return rc;
}

/* --- what a heap needs --- */

static int heap_execute(void *context, struct reef_access *accesses,
			uint32_t count)
{
	struct reef_space *space = context;
	int rc = client_handle_check(space->reef);

	return rc ? rc : client_execute(space->reef, accesses, count);
}

static uint32_t heap_extents(void *context, uint32_t *numbers, uint64_t *sizes,
			     uint32_t max)
{
	struct reef_space *space = context;
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	uint32_t count = 0, i;

	pthread_mutex_lock(&client->lock);
	for (i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (!extent || extent->space != space->space ||
		    extent->state != REEF_EXTENT_LIVE)
			continue;
		if (count < max) {
			numbers[count] = extent->extent;
			sizes[count] = extent->size;
		}
		count++;
	}
	pthread_mutex_unlock(&client->lock);
	return count;
}

static int heap_grow(void *context, uint64_t size, uint32_t *number,
		     uint64_t *real_size)
{
	struct reef_space *space = context;
	struct client_job *job = client_job_create(client_grow_job);
	int rc;

	if (!job)
		return -ENOMEM;
	job->space = space->space;
	job->size = size;
	rc = client_job_run(space->reef, job);
	if (!rc) {
		*number = job->extent;
		*real_size = job->size;
	}
	client_job_unref(job);
	return rc;
}

static int heap_is_fenced(void *context, uint32_t session)
{
	struct reef_space *space = context;
	enum reef_session_view view;
	int rc;

	rc = reef_session_look(space->reef, session, &view);
	return rc ? rc : view == REEF_VIEW_ENDED;
}

static uint64_t heap_reclaim_epoch(void *context)
{
	struct reef_space *space = context;

	/* It may be one more by now: see take_epochs in keeper.c. */
	return atomic_load(&space->reef->client->reclaim_epoch) + 1;
}

static uint64_t heap_safe_epoch(void *context)
{
	struct reef_space *space = context;

	return atomic_load(&space->reef->client->safe_epoch);
}

static void heap_hurry(void *context, uint64_t epoch)
{
	struct reef_space *space = context;

	client_hurry(space->reef->client, epoch);
}

static bool heap_is_inside(void *context)
{
	struct reef_space *space = context;

	return client_is_inside(space->reef);
}

static int heap_is_live(void *context, uint8_t kind, uint64_t address)
{
	return client_kind_is_live(context, kind, address);
}

static const struct reef_heap_ops heap_ops = {
	.execute = heap_execute,
	.extents = heap_extents,
	.grow = heap_grow,
	.is_fenced = heap_is_fenced,
	.reclaim_epoch = heap_reclaim_epoch,
	.safe_epoch = heap_safe_epoch,
	.hurry = heap_hurry,
	.is_inside = heap_is_inside,
	.is_live = heap_is_live,
};

static int make_heap(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	struct reef_heap_options options = {
		.ops = &heap_ops,
		.context = space,
		.session = client->session,
		.seed = client->options.seed,
		.mutant = client->options.heap_mutant,
	};
	struct client_heap *heap = calloc(1, sizeof(*heap));
	uint64_t made = atomic_fetch_add(&client->heaps_made, 1);
	int rc = 0;

	if (!heap)
		return -ENOMEM;
	if (made < REEF_HEAP_NUMBER_MAX)
		options.number = (uint16_t)(made + 1);
	if (!options.seed)
		rc = reef_random_secret(&options.seed, sizeof(options.seed));
	else
		options.seed += made;
	if (!rc)
		rc = reef_heap_create(&options, &heap->heap);
	if (rc) {
		free(heap);
		return rc;
	}
	pthread_mutex_lock(&client->lock);
	heap->lost_seen = space->space->lost_count;
	pthread_mutex_unlock(&client->lock);
	space->heap = heap;
	return 0;
}

int client_heap_get(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	struct client_heap *heap;

	if (likely(space->heap != NULL))
		return 0;
	pthread_mutex_lock(&client->lock);
	heap = space->space->heaps;
	if (heap)
		space->space->heaps = heap->next;
	pthread_mutex_unlock(&client->lock);
	if (!heap)
		return make_heap(space);
	heap->next = NULL;
	space->heap = heap;
	reef_heap_move(heap->heap, &heap_ops, space);
	/* What was lost while nobody had it. */
	client_handle_look(space->reef);
	return 0;
}

void client_heap_put(struct reef_space *space, bool all)
{
	struct client_heap *heap = space->heap, **at;
	struct reef_client *client = space->reef->client;

	if (!heap)
		return;
	if (!client_over(client)) {
		reef_heap_flush(heap->heap);
		reef_heap_collect(heap->heap, all);
	}
	space->heap = NULL;
	space->ready = 0;
	heap->next = NULL;
	pthread_mutex_lock(&client->lock);
	for (at = &space->space->heaps; *at; at = &(*at)->next)
		;
	*at = heap;
	pthread_mutex_unlock(&client->lock);
}

/* --- blocks --- */

/* May it be changed, and is there a heap? What speaks against it moves the
 * version of the view. */
static __attribute__((noinline)) int prepare_slowly(struct reef_space *space)
{
	struct reef *reef = space->reef;
	int rc;

	space->ready = 0;
	rc = client_handle_check(reef);
	if (rc)
		return rc;
	if (unlikely(space->space->gone))
		return -REEF_ELOST;
	if (unlikely(!(space->space->rights & REEF_RIGHT_WRITE)))
		return -EACCES;
	rc = client_heap_get(space);
	if (!rc && unlikely(!client_is_current(reef)))
		client_handle_look(reef);
	if (!rc)
		space->ready = reef->seen;
	return rc;
}

static inline int prepare(struct reef_space *space)
{
	if (likely(space->ready ==
			   atomic_load_explicit(&space->reef->client->version,
						memory_order_relaxed) &&
		   !client_is_forked(space->reef)))
		return 0;
	return prepare_slowly(space);
}

/* This handle's heap is full, and there is no more to be had: perhaps there is
 * room in one of those that nobody has, such as what was recovered. */
static int alloc_elsewhere(struct reef_space *space, uint8_t kind,
			   uint64_t size, uint64_t *address, int rc)
{
	uint32_t left = idle_heaps(space);

	while (left-- && (rc == -ENOSPC || rc == -EDQUOT)) {
		client_heap_put(space, true);
		rc = prepare_slowly(space);
		if (!rc)
			rc = reef_heap_alloc(space->heap->heap, kind, size,
					     address);
	}
	return rc;
}

/* --- memory that waits (R8) --- */

/* Does something wait in the heaps that nobody has? Then until when. */
static bool is_waiting_elsewhere(struct reef_space *space, uint64_t *epoch)
{
	struct reef_client *client = space->reef->client;
	const struct client_heap *heap;
	bool is_waiting = false;
	uint64_t one;

	pthread_mutex_lock(&client->lock);
	for (heap = space->space->heaps; heap; heap = heap->next)
		if (reef_heap_is_waiting(heap->heap, &one) &&
		    (!is_waiting || one < *epoch)) {
			*epoch = one;
			is_waiting = true;
		}
	pthread_mutex_unlock(&client->lock);
	return is_waiting;
}

int reef_reclaim(struct reef_space *space, uint64_t timeout_ns)
{
	uint64_t until_ns = reef_deadline_ns(timeout_ns), now_ns;
	uint64_t given = 0, epoch = 0;
	bool is_elsewhere;
	int rc;

	if (client_is_entered(space->reef))
		return -EDEADLK;
	for (;;) {
		rc = prepare(space);
		if (!rc)
			rc = reef_heap_reclaim(space->heap->heap, &given,
					       &epoch);
		if (rc == 1)
			return 0;
		is_elsewhere =
			rc == -ENOSPC && is_waiting_elsewhere(space, &epoch);
		if (rc && !is_elsewhere)
			return rc;
		now_ns = reef_now_ns();
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		rc = client_epoch_wait(space->reef, epoch, until_ns - now_ns);
		/* Whoever allocates next takes that heap. */
		if (rc || is_elsewhere)
			return rc;
	}
}

/* There is no more to be had, but perhaps something waits. */
static int alloc_waiting(struct reef_space *space, uint8_t kind, uint64_t size,
			 uint64_t *address, int rc)
{
	uint64_t until_ns, now_ns;
	int why = 0;

	/* Who died holds it up until its lease is over. */
	until_ns = reef_deadline_ns(3 * space->reef->client->ttl_ns / 2);
	while ((rc == -ENOSPC || rc == -EDQUOT) && !why) {
		now_ns = reef_now_ns();
		if (now_ns >= until_ns)
			break;
		why = reef_reclaim(space, until_ns - now_ns);
		if (!why)
			why = prepare(space);
		if (why)
			break;
		rc = reef_heap_alloc(space->heap->heap, kind, size, address);
		if (rc == -ENOSPC || rc == -EDQUOT)
			rc = alloc_elsewhere(space, kind, size, address, rc);
	}
	return why == -REEF_EHOSTDEAD || why == -REEF_EFENCED ? why : rc;
}

int reef_alloc_kind(struct reef_space *space, uint8_t kind, uint64_t size,
		    uint64_t *address)
{
	int rc = prepare(space);

	if (rc)
		return rc;
	if (unlikely(!size))
		return -EINVAL;
	rc = reef_heap_alloc(space->heap->heap, kind, size, address);
	if (unlikely(rc == -ENOSPC || rc == -EDQUOT))
		rc = alloc_elsewhere(space, kind, size, address, rc);
	if (unlikely(rc == -ENOSPC || rc == -EDQUOT) &&
	    !client_is_entered(space->reef))
		rc = alloc_waiting(space, kind, size, address, rc);
	if (!rc)
		space->reef->pending = true;
	return rc;
}

int reef_alloc(struct reef_space *space, uint64_t size, uint64_t *address)
{
	return reef_alloc_kind(space, REEF_BLOCK_RAW, size, address);
}

int reef_free(struct reef_space *space, uint64_t address, uint32_t flags)
{
	int rc = prepare(space);

	if (rc)
		return rc;
	if (unlikely(flags & ~(uint32_t)REEF_FREE_LATER))
		return -EINVAL;
	return reef_heap_free(space->heap->heap, address, flags);
}

int reef_keep(struct reef_space *space, uint64_t address)
{
	int rc = prepare(space);

	return rc ? rc : reef_heap_keep(space->heap->heap, address);
}

int reef_block_size(struct reef_space *space, uint64_t address, uint64_t *size)
{
	int rc = client_handle_check(space->reef);

	if (!rc)
		rc = client_heap_get(space);
	return rc ? rc : reef_heap_block_size(space->heap->heap, address, size);
}

int reef_block_stats(struct reef_space *space, struct reef_block_stats *out)
{
	struct reef_heap_stats stats;
	int rc = client_handle_check(space->reef);

	if (!rc)
		rc = client_heap_get(space);
	if (rc)
		return rc;
	reef_heap_stats(space->heap->heap, &stats);
	memset(out, 0, sizeof(*out));
	out->bytes_taken = stats.chunks * REEF_CHUNK_SIZE;
	out->bytes_live = stats.bytes_live;
	out->bytes_waiting = stats.bytes_limbo;
	out->classes = stats.classes;
	for (uint32_t i = 0; i < stats.classes; i++) {
		out->by_class[i].size = stats.by_class[i].block_size;
		out->by_class[i].blocks = stats.by_class[i].blocks;
		out->by_class[i].live = stats.by_class[i].live;
		out->by_class[i].waiting = stats.by_class[i].limbo;
	}
	return 0;
}

struct reef *reef_space_handle(struct reef_space *space)
{
	return space->reef;
}

uint32_t reef_space_id(const struct reef_space *space)
{
	return space->space->id;
}
