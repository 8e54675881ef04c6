/* test_heap_sim.c - several sessions with heaps in one memory, over a fabric
 * that tears, delays, reorders and loses; sessions are killed between any two
 * operations, and recovered by others, who may be killed too.
 *
 * A book in plain memory says which blocks are out. What must hold:
 *   - no new block overlaps one that is out, or that waits for somebody who was
 *     inside when it was freed (R8)
 *   - a block that is out has its bytes, and can be freed exactly once
 *   - at the end, when all sessions are gone and recovered, and what was kept
 *     is freed, no chunk is anybody's
 * Half of the seeds have a janitor, which recovers and gives everything away.
 * The mutants of the heap break one of these each, and are found. */
#include "base/mutant.h"
#include "fixture/heap_recover.h"
#include "fixture/heap_sim.h"
#include "fixture/seeds.h"
#include "pool/client/heap/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 60
#define SEEDS_SOAK 6000
#define MUTANT_SEEDS 2000 /* at most, until it is found */
#define BOOK_MAX 4000u
#define BOARD_SLOTS 12u
#define STEPS 60u
#define KIND 9 /* of blocks that live on as the book says */

enum entry_state {
	ENTRY_NONE,
	ENTRY_LIVE,
	ENTRY_FREEING, /* somebody began to: it may be reused at any time */
	ENTRY_LIMBO,   /* likewise, when those who were inside have left */
	ENTRY_GONE,
};

struct entry {
	enum entry_state state;
	uint64_t address, size;
	uint32_t owner;
	bool kept, published;
	/* Several free it at once: how many may begin, began, had success. */
	bool race_open;
	uint32_t racers, freed, unclear;
	uint64_t inside[HEAPS_MAX][ACTORS_MAX]; /* times + 1; 0: was not */
};

struct book {
	struct land land;
	struct entry entries[BOOK_MAX];
	uint32_t count;
	uint32_t kills;
	struct heap_client *closer;
	/* What a run did; abandoned: chunks that were, each time it was looked.
	 */
	uint64_t allocs, frees, recovers, abandoned;
};

static struct book *book_of(struct heap_client *client)
{
	return (struct book *)client->land;
}

static struct reef_random *chance(struct heap_client *client)
{
	return reef_sim_host_random(client->host);
}

static bool is_end(int rc)
{
	return rc == -REEF_EHOSTDEAD || rc == -REEF_EFENCED;
}

/* --- inside and outside --- */

static void enter(struct heap_reader *actor)
{
	actor->inside = true;
	actor->epoch = actor->client->land->reclaim;
	actor->times++;
}

static void leave(struct heap_reader *actor)
{
	/* What a dead one does has no effect. */
	if (!actor->client->killed)
		actor->inside = false;
}

static void snapshot(struct book *book, struct entry *entry)
{
	struct land *land = &book->land;

	memset(entry->inside, 0, sizeof(entry->inside));
	for (uint32_t i = 0; i < land->clients_count; i++)
		for (uint32_t j = 0; j < ACTORS_MAX; j++)
			if (land->clients[i].actors[j].inside)
				entry->inside[i][j] =
					land->clients[i].actors[j].times + 1;
	entry->state = ENTRY_LIMBO;
}

static bool somebody_still_inside(const struct book *book,
				  const struct entry *entry)
{
	const struct land *land = &book->land;

	for (uint32_t i = 0; i < land->clients_count; i++)
		for (uint32_t j = 0; j < ACTORS_MAX; j++) {
			const struct heap_reader *actor =
				&land->clients[i].actors[j];

			if (!land->clients[i].fenced && actor->inside &&
			    entry->inside[i][j] == actor->times + 1)
				return true;
		}
	return false;
}

/* --- the book --- */

static bool overlaps(const struct entry *a, const struct entry *b)
{
	return a->address < b->address + b->size + 8 &&
	       b->address < a->address + a->size + 8;
}

/* Enter a new block; its number, 0: the book is full. */
static uint32_t book_add(struct book *book, uint32_t owner, uint64_t address,
			 uint64_t size)
{
	struct entry *new = &book->entries[book->count];

	*new = (struct entry){.state = ENTRY_LIVE,
			      .address = address,
			      .size = size,
			      .owner = owner};
	for (uint32_t i = 0; i < book->count; i++) {
		struct entry *old = &book->entries[i];

		if (old->state == ENTRY_GONE || !overlaps(old, new))
			continue;
		if (old->state == ENTRY_LIVE)
			land_wrong(&book->land,
				   "%llx of %u is out twice, now to %u",
				   (unsigned long long)old->address, old->owner,
				   owner);
		if (old->state == ENTRY_LIMBO &&
		    somebody_still_inside(book, old))
			land_wrong(&book->land, "%llx is reused too early",
				   (unsigned long long)old->address);
		old->state = ENTRY_GONE;
	}
	return ++book->count;
}

/* The judge of blocks of KIND: those that are out and were to stay do. */
static int book_is_live(const struct land *land, uint64_t address)
{
	const struct book *book = (const struct book *)land;

	for (uint32_t i = 0; i < book->count; i++)
		if (book->entries[i].address == address &&
		    book->entries[i].state == ENTRY_LIVE &&
		    book->entries[i].kept)
			return 1;
	return 0;
}

/* A session is FENCED, and is about to be recovered: what ends with it. */
static void book_end(struct book *book, uint32_t number)
{
	for (uint32_t i = 0; i < book->count; i++) {
		struct entry *entry = &book->entries[i];

		if (entry->owner != number || entry->state != ENTRY_LIVE ||
		    entry->kept)
			continue;
		/* One that nobody knows of need not wait. */
		snapshot(book, entry);
		if (!entry->published)
			entry->state = ENTRY_FREEING;
	}
}

/* --- what clients do --- */

static uint64_t some_size(struct reef_random *random)
{
	static const uint64_t most[] = {24,	  200,	     3000,
					30 * KIB, 100 * KIB, 700 * KIB};

	return 24 +
	       reef_random_below(random, most[reef_random_below(random, 6)]);
}

static void fill(uint8_t *bytes, uint32_t length, uint32_t number)
{
	memset(bytes, 0xa5, length); /* no header looks like that */
	memcpy(bytes, &number, 4);
}

static uint64_t slot_address(uint32_t slot)
{
	/* Behind the last extent; see heap_client_op. */
	return ((uint64_t)(LAND_EXTENTS + 1) << 32) + slot * 8;
}

/* Its bytes, and the board's word, which is the block's number. */
static int publish(struct heap_client *client, uint32_t number,
		   uint64_t address, uint64_t size)
{
	uint32_t slot =
		(uint32_t)reef_random_below(chance(client), BOARD_SLOTS);
	uint32_t length = size < 200 ? (uint32_t)size : 200;
	struct reef_access access = {.kind = REEF_CAS,
				     .address = slot_address(slot),
				     .operand = number};
	uint8_t bytes[208];
	int rc;

	fill(bytes + 8, length, number);
	/* Some are told of before anything is in them. */
	if (reef_random_chance(chance(client), 3, 4)) {
		rc = heap_client_write(client, address, bytes, length);
		if (rc)
			return rc;
	}
	rc = heap_client_do(client, &access);
	if (rc == 0)
		book_of(client)->entries[number - 1].published = true;
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

static int do_alloc(struct heap_client *client)
{
	struct book *book = book_of(client);
	uint64_t size = some_size(chance(client)), address;
	bool stays = reef_random_chance(chance(client), 1, 12);
	uint32_t number;
	int rc;

	if (book->count == BOOK_MAX)
		return 0;
	rc = reef_heap_alloc(client->heap, stays ? KIND : REEF_BLOCK_RAW, size,
			     &address);
	if (rc == -ENOSPC)
		return 0;
	if (rc) {
		if (!is_end(rc) && rc != -REEF_EINDOUBT)
			land_wrong(&book->land, "alloc: %s",
				   reef_error_name(rc));
		return rc;
	}
	if (client->killed)
		return -REEF_EHOSTDEAD; /* nobody has heard of it */
	book->allocs++;
	number = book_add(book, client->number, address, size);
	book->entries[number - 1].kept = stays;
	if (!stays && reef_random_chance(chance(client), 1, 12)) {
		rc = reef_heap_keep(client->heap, address);
		if (rc && !is_end(rc) && rc != -REEF_EINDOUBT)
			land_wrong(&book->land, "keep: %s",
				   reef_error_name(rc));
		/* If that was cut short, it stays or it does not. */
		if (rc || client->killed)
			book->entries[number - 1].state = ENTRY_FREEING;
		else
			book->entries[number - 1].kept = true;
		if (rc)
			return rc;
	}
	return publish(client, number, address, size);
}

/* Free a block that nobody else may free now. */
static int free_entry(struct heap_client *client, struct entry *entry)
{
	struct book *book = book_of(client);
	uint32_t flags =
		reef_random_chance(chance(client), 1, 2) ? REEF_FREE_LATER : 0;
	bool doubt = false;
	int rc;

	if (client->killed)
		return -REEF_EHOSTDEAD;
	if (flags)
		snapshot(book, entry);
	else
		entry->state = ENTRY_FREEING;
	do {
		rc = reef_heap_free(client->heap, entry->address, flags);
		doubt |= rc == -REEF_EINDOUBT;
	} while (rc == -REEF_EINDOUBT);
	book->frees += rc == 0;
	if (rc == -EALREADY && doubt)
		rc = 0;
	if (rc && !is_end(rc))
		land_wrong(&book->land, "free %llx of %u by %u: %s",
			   (unsigned long long)entry->address, entry->owner,
			   client->number, reef_error_name(rc));
	return rc;
}

/* Take a block off the board; what was written in it must be there. Its owner
 * may die and be recovered meanwhile, so this is done inside. */
static int take(struct heap_client *client)
{
	struct book *book = book_of(client);
	uint32_t slot =
		(uint32_t)reef_random_below(chance(client), BOARD_SLOTS);
	uint64_t number = 0, bytes = 0;
	struct reef_access access = {.kind = REEF_READ,
				     .address = slot_address(slot),
				     .local = &number,
				     .length = 8};
	struct entry *entry;
	int rc = heap_client_do(client, &access);

	if (rc || !number)
		return rc;
	access = (struct reef_access){.kind = REEF_CAS,
				      .address = slot_address(slot),
				      .compare = number};
	rc = heap_client_do(client, &access);
	if (rc || access.result != number)
		return rc == -REEF_EINDOUBT ? 0 : rc;
	if (number > book->count) {
		land_wrong(&book->land, "nonsense on the board");
		return -EIO;
	}
	entry = &book->entries[number - 1];
	if (entry->state != ENTRY_LIVE || entry->race_open)
		return 0; /* its session is gone, and it with it */
	access = (struct reef_access){.kind = REEF_READ,
				      .address = entry->address,
				      .local = &bytes,
				      .length = 8};
	rc = heap_client_do(client, &access);
	if (!rc && entry->state == ENTRY_LIVE && (uint32_t)bytes == number &&
	    bytes >> 32 != (entry->size < 8 ? 0 : UINT64_C(0xa5a5a5a5)))
		land_wrong(&book->land, "block %llu has other bytes",
			   (unsigned long long)number);
	if (rc || entry->state != ENTRY_LIVE || entry->race_open)
		return rc;
	return free_entry(client, entry);
}

static int do_take(struct heap_client *client, struct heap_reader *actor)
{
	int rc;

	enter(actor);
	rc = take(client);
	leave(actor);
	return rc;
}

/* Be inside for a while, with a block in sight. */
static int do_peek(struct heap_client *client, struct heap_reader *actor)
{
	int rc;

	enter(actor);
	rc = reef_sleep(reef_random_below(chance(client), 3 * MILLISECOND));
	leave(actor);
	return rc;
}

/* Several free one block at the same time; all were inside before the first
 * began, so it cannot be another block by then. */
static int race(struct heap_client *client, struct heap_reader *actor,
		struct entry *entry, bool first)
{
	struct book *book = book_of(client);
	uint64_t links;
	int rc;

	enter(actor);
	entry->racers++;
	rc = reef_sleep(first ? 200000 : 300000);
	if (rc)
		goto out;
	/* Mostly the first; but that one may have died. */
	entry->race_open = false;
	if (entry->state == ENTRY_LIVE)
		snapshot(book, entry);
	links = client->links;
	rc = reef_heap_free(client->heap, entry->address, REEF_FREE_LATER);
	/* Who lost its link meanwhile cannot tell its own free from another's.
	 */
	if (rc == 0 && links == client->links)
		entry->freed++;
	else if (rc != -EALREADY)
		entry->unclear++;
	if (entry->freed > 1)
		land_wrong(&book->land, "%llx was freed twice",
			   (unsigned long long)entry->address);
	if (rc == -EALREADY)
		rc = 0;
	if (rc && !is_end(rc) && rc != -REEF_EINDOUBT)
		land_wrong(&book->land, "free in a race: %s",
			   reef_error_name(rc));
out:
	/* A dead one leaves the race as it was: open, for nobody to enter. */
	if (!client->killed && --entry->racers == 0 && !entry->freed &&
	    !entry->unclear && !rc)
		land_wrong(&book->land, "%llx was freed by nobody",
			   (unsigned long long)entry->address);
	leave(actor);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

static int do_race(struct heap_client *client, struct heap_reader *actor)
{
	struct book *book = book_of(client);

	for (uint32_t i = book->count; i-- > 0 && i + 40 > book->count;) {
		struct entry *entry = &book->entries[i];
		bool alive = !book->land.clients[entry->owner - 1].killed;

		if (entry->state != ENTRY_LIVE || entry->kept || !alive ||
		    !entry->published || entry->owner == client->number)
			continue;
		if (entry->race_open)
			return race(client, actor, entry, false);
		if (reef_random_chance(chance(client), 1, 4)) {
			entry->race_open = true;
			return race(client, actor, entry, true);
		}
	}
	return 0;
}

/* Whoever was fenced goes; whoever was not must stay. */
static int do_recover(struct heap_client *client, uint32_t number)
{
	struct book *book = book_of(client);
	bool fenced = book->land.clients[number - 1].fenced;
	int rc;

	if (fenced)
		book_end(book, number);
	rc = heap_recover_one(client->heap, SESSION(number), NULL, NULL);
	book->recovers += rc == 0;
	if (rc == -EBUSY || rc == -REEF_EINDOUBT)
		return 0;
	if (rc && !is_end(rc))
		land_wrong(&book->land, "recover %u: %s", number,
			   reef_error_name(rc));
	if (!rc && !fenced)
		land_wrong(&book->land, "%u was recovered alive", number);
	return rc;
}

static int do_something(struct heap_client *client, struct heap_reader *actor)
{
	struct reef_random *random = chance(client);
	uint32_t other = 1 + (uint32_t)reef_random_below(
				     random, client->land->clients_count);
	int rc;

	switch (reef_random_below(random, 16)) {
	case 0 ... 5:
		return do_alloc(client);
	case 6 ... 9:
		return do_take(client, actor);
	case 10 ... 11:
		return do_peek(client, actor);
	case 12:
		return do_race(client, actor);
	case 13:
		rc = reef_heap_collect(client->heap,
				       reef_random_chance(random, 1, 2));
		return rc == -REEF_EINDOUBT ? 0 : rc;
	default:
		if (other == client->number)
			return 0;
		return do_recover(client, other);
	}
}

static int actor_main(void *arg)
{
	struct heap_reader *actor = arg;
	int rc = 0;

	for (uint32_t i = 0; i < STEPS && !rc; i++) {
		rc = do_something(actor->client, actor);
		if (!rc)
			rc = reef_sleep(reef_random_below(chance(actor->client),
							  200000));
		if (actor->client->land->wrong[0])
			break;
	}
	leave(actor);
	return rc;
}

static int client_run(struct reef_sim_host *host, void *arg)
{
	struct heap_client *client = arg;
	struct reef_fiber *second = NULL;
	int rc = heap_client_open(client, host), ended;

	if (!rc && client->number % 2)
		rc = reef_fiber_spawn(reef_fiber_sched(), actor_main,
				      &client->actors[1], &second);
	if (!rc)
		rc = actor_main(&client->actors[0]);
	if (second)
		reef_fiber_join(second, &ended);
	heap_client_close(client);
	return rc;
}

/* --- the janitor --- */

static uint64_t chunk_word(const struct land *land, uint32_t extent,
			   uint32_t chunk)
{
	uint64_t word;

	memcpy(&word,
	       (uint8_t *)land->memory->base + extent * LAND_EXTENT + 64 +
		       16 * chunk,
	       8);
	return word;
}

static uint32_t count_abandoned(const struct land *land)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < land->extents; i++)
		for (uint32_t c = 0; c < LAND_EXTENT / MIB; c++)
			count +=
				heap_chunk_is_abandoned(chunk_word(land, i, c));
	return count;
}

static int janitor_step(struct heap_client *client)
{
	struct book *book = book_of(client);
	struct reef_heap_recovery list[HEAPS_MAX] = {0};
	uint32_t count = 0;
	int rc;

	for (uint32_t n = 1; n <= client->land->clients_count; n++) {
		if (!client->land->clients[n - 1].fenced)
			continue;
		book_end(book, n);
		list[count++].session = SESSION(n);
	}
	rc = reef_heap_recover(client->heap, list, count, NULL, NULL);
	for (uint32_t i = 0; i < count; i++)
		book->recovers += list[i].status == 0;
	if (rc && rc != -EBUSY && rc != -REEF_EINDOUBT)
		return rc;
	if (reef_random_chance(chance(client), 1, 8)) {
		rc = reef_heap_adopt(client->heap, 3);
		if (rc < 0 && rc != -REEF_EINDOUBT)
			return rc;
	}
	rc = reef_heap_collect(client->heap, true);
	if (!rc)
		rc = reef_heap_relinquish(client->heap);
	book->abandoned += count_abandoned(&book->land);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* It recovers, and owns nothing for long. */
static int janitor_run(struct reef_sim_host *host, void *arg)
{
	struct heap_client *client = arg;
	struct land *land = client->land;
	int rc = heap_client_open(client, host);

	for (uint32_t i = 0; i < STEPS && !rc && !land->wrong[0]; i++) {
		rc = janitor_step(client);
		if (rc && !is_end(rc))
			land_wrong(land, "janitor: %s", reef_error_name(rc));
		if (!rc)
			rc = reef_sleep(
				reef_random_below(chance(client), 400000));
	}
	heap_client_close(client);
	return rc;
}

/* --- the end --- */

static int close_recover(struct heap_client *client)
{
	struct land *land = client->land;
	int rc = -EBUSY;

	/* In whatever order; what hangs together goes with its first chunk. */
	for (uint32_t i = 0; i < HEAPS_MAX && rc == -EBUSY; i++) {
		rc = 0;
		for (uint32_t n = land->clients_count; n >= 1; n--) {
			int one;

			if (n == client->number)
				continue;
			one = heap_recover_one(client->heap, SESSION(n), NULL,
					       NULL);
			if (one && one != -EBUSY) {
				land_wrong(land, "last recovery of %u: %s", n,
					   reef_error_name(one));
				return one;
			}
			rc = one ? one : rc;
		}
	}
	if (rc)
		land_wrong(land, "what is left belongs to nobody: %s",
			   reef_error_name(rc));
	return rc;
}

static int free_surely(struct heap_client *client, uint64_t address)
{
	bool doubt = false;
	int rc;

	do {
		rc = reef_heap_free(client->heap, address, 0);
		doubt |= rc == -REEF_EINDOUBT;
	} while (rc == -REEF_EINDOUBT);
	return doubt && rc == -EALREADY ? 0 : rc;
}

static int close_free(struct heap_client *client)
{
	struct book *book = book_of(client);
	int rc = 0;

	for (uint32_t i = 0; i < book->count; i++) {
		struct entry *entry = &book->entries[i];

		if (entry->state == ENTRY_LIVE && entry->kept)
			rc = free_surely(client, entry->address);
		else if (entry->state == ENTRY_FREEING ||
			 (entry->state == ENTRY_LIMBO && entry->kept))
			/* Perhaps it was kept, and perhaps freed: who did it
			 * may have died over it. */
			free_surely(client, entry->address);
		if (rc) {
			land_wrong(&book->land, "last free: %s",
				   reef_error_name(rc));
			return rc;
		}
	}
	return 0;
}

/* Waits for all others to end, recovers them, and looks. */
static int closer_run(struct reef_sim_host *host, void *arg)
{
	struct heap_client *client = arg;
	struct land *land = client->land;
	bool waiting = true;
	int rc = 0;

	while (waiting && !rc) {
		waiting = false;
		for (uint32_t i = 0; i < land->clients_count; i++) {
			struct heap_client *other = &land->clients[i];

			/* A session that ends is fenced, too. */
			if (other->ended && other != client)
				other->killed = true;
			waiting |= !other->fenced && other != client;
		}
		rc = reef_sleep(MILLISECOND);
	}
	if (!rc)
		rc = heap_client_open(client, host);
	if (!rc && !land->wrong[0])
		rc = close_recover(client);
	/* What is nobody's, too. */
	if (!rc && !land->wrong[0])
		rc = reef_heap_adopt(client->heap, UINT32_MAX);
	rc = rc < 0 ? rc : 0;
	if (!rc && !land->wrong[0])
		rc = close_free(client);
	for (uint32_t i = 0; i < 2 && !rc && !land->wrong[0]; i++) {
		land->reclaim += 2;
		rc = reef_heap_collect(client->heap, true);
		if (rc)
			land_wrong(land, "last collect: %s",
				   reef_error_name(rc));
	}
	heap_client_close(client);
	land->over = true;
	return rc;
}

/* Kill some, at any time; the rest of the time nothing. */
static int killer_run(struct reef_sim_host *host, void *arg)
{
	struct book *book = arg;
	struct reef_random *random = reef_sim_random(book->land.sim);
	int rc = 0;

	for (uint32_t i = 0; i < book->kills && !rc; i++) {
		struct heap_client *client =
			&book->land.clients[reef_random_below(
				random, book->land.clients_count - 1)];

		rc = reef_sleep(reef_random_below(random, 8 * MILLISECOND));
		if (client->killed || client->ended)
			continue;
		client->killed = true;
		reef_sim_host_kill(client->host);
	}
	return rc;
}

static void all_free(struct book *book)
{
	for (uint32_t i = 0; i < book->land.extents; i++)
		for (uint32_t c = 0; c < LAND_EXTENT / MIB; c++) {
			uint64_t word = chunk_word(&book->land, i, c);

			if (!heap_chunk_is_free(word))
				land_wrong(&book->land,
					   "chunk %u of %u is %llx at the end",
					   c, i, (unsigned long long)word);
		}
}

static void add_client(struct book *book,
		       int (*run)(struct reef_sim_host *host, void *arg))
{
	struct land *land = &book->land;
	struct heap_client *client = &land->clients[land->clients_count++];
	char name[16];

	client->land = land;
	client->number = land->clients_count;
	for (uint32_t i = 0; i < ACTORS_MAX; i++)
		client->actors[i].client = client;
	snprintf(name, sizeof(name), "client%u", client->number);
	assert_int_equal(
		reef_sim_host_add(land->sim, name, run, client, &client->host),
		0);
}

/* What went wrong is in book->land.wrong. */
static void run_seed(struct book *book, uint64_t seed, enum reef_mutant mutant)
{
	struct reef_sim_options options = {
		.seed = seed,
		.lose_link_ppm = seed % 3 == 0 ? 3000 : 0,
	};
	struct land *land = &book->land;
	int rc;

	memset(book, 0, sizeof(*book));
	reef_mutate(mutant);
	land->reclaim = 1;
	assert_int_equal(reef_sim_create(&options, &land->sim), 0);
	assert_int_equal(reef_sim_host_add(land->sim, "node", land_main, land,
					   &land->node),
			 0);
	land->is_live = book_is_live;
	for (uint32_t i = 0; i < 3 + seed % (HEAPS_MAX - 4); i++)
		add_client(book, client_run);
	if (seed % 2)
		add_client(book, janitor_run);
	add_client(book, closer_run);
	book->kills = (uint32_t)(seed / 2 % 5);
	assert_int_equal(
		reef_sim_host_add(land->sim, "killer", killer_run, book, NULL),
		0);
	rc = reef_sim_run(land->sim, 1000 * SECOND);
	if (rc)
		land_wrong(land, "the run: %s", reef_error_name(rc));
	if (!land->wrong[0])
		all_free(book);
	reef_sim_destroy(land->sim);
	reef_mutate(REEF_MUTANT_NONE);
	reef_memory_destroy(land->memory);
}

static void heap_sim_sessions_killed_all_come_back(void **state)
{
	struct book *book = calloc(1, sizeof(*book));
	uint64_t seeds = seeds_of(SEEDS, SEEDS_SOAK);
	uint64_t allocs = 0, frees = 0, recovers = 0, abandoned = 0;

	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds); seed++) {
		run_seed(book, seed, REEF_MUTANT_NONE);
		if (book->land.wrong[0])
			fail_msg("seed %llu: %s", (unsigned long long)seed,
				 book->land.wrong);
		allocs += book->allocs;
		frees += book->frees;
		recovers += book->recovers;
		abandoned += book->abandoned;
	}
	print_message("%llu blocks, %llu freed, %llu recoveries, chunks seen "
		      "abandoned: %llu\n",
		      (unsigned long long)allocs, (unsigned long long)frees,
		      (unsigned long long)recovers,
		      (unsigned long long)abandoned);
	assert_true(abandoned || !seeds_has(2, seeds));
	free(book);
}

#if !SANITIZED
static void find_mutant(enum reef_mutant mutant)
{
	struct book *book = calloc(1, sizeof(*book));
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, MUTANT_SEEDS); seed++) {
		run_seed(book, seed, mutant);
		if (book->land.wrong[0])
			break;
	}
	if (!book->land.wrong[0])
		fail_msg("mutant %s was not found", reef_mutant_name(mutant));
	print_message("found by seed %llu: %s\n", (unsigned long long)seed,
		      book->land.wrong);
	free(book);
}

static void heap_sim_mutant_early_reuse_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_EARLY_REUSE);
}

static void heap_sim_mutant_claim_generation_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_CLAIM_GENERATION);
}

static void heap_sim_mutant_late_header_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_LATE_HEADER);
}

static void heap_sim_mutant_adopt_alive_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_ADOPT_ALIVE);
}

static void heap_sim_mutant_abandon_unjudged_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_ABANDON_UNJUDGED);
}

static void heap_sim_mutant_free_kept_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_FREE_KEPT);
}

static void heap_sim_mutant_free_write_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_FREE_WRITE);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heap_sim_sessions_killed_all_come_back),
#if !SANITIZED
		cmocka_unit_test(heap_sim_mutant_early_reuse_found),
		cmocka_unit_test(heap_sim_mutant_claim_generation_found),
		cmocka_unit_test(heap_sim_mutant_late_header_found),
		cmocka_unit_test(heap_sim_mutant_adopt_alive_found),
		cmocka_unit_test(heap_sim_mutant_free_write_found),
		cmocka_unit_test(heap_sim_mutant_abandon_unjudged_found),
		cmocka_unit_test(heap_sim_mutant_free_kept_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
