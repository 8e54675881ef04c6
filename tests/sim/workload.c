/* workload.c - what clients do, and what they check.
 *
 * (a) Blocks: allocate, fill with a pattern, verify, free. `live` has every
 *     range that somebody owns: an allocation that overlaps one is a violation,
 *     unless the other's session has ended. A READ that succeeds and brings
 *     wrong bytes always is. Kept blocks change hands and are freed by another.
 * (b) Board: one shared block; word i is written by client i with its session
 *     and a counter. Once a session was seen ENDED its word never changes
 *     again, and ENDED is never taken back.
 * (c) Names: "n<i>" is replaced by client i alone; "sum" by everybody, each
 *     success counts once.
 * (d) Mailboxes: words that point to blocks which others change in place; what
 *     is replaced is freed with REEF_FREE_LATER (R8).
 * (e) Errors are judged: each only where something explains it. */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "sim"
#define HOME "home"
#define BOARD_WORDS 64
#define MAILBOXES 8 /* words of the board, after the clients' */
#define STAMPERS 3  /* fibers of one handle */
#define MAIL_MAGIC 0x6d61696c00000000ull
#define SIZE_MAX_BITS 17

static uint64_t below(struct client *client, uint64_t bound)
{
	return reef_random_below(&client->random, bound);
}

/* Is that error explained by what happened? Then the step is over. */
static int judge(struct client *client, const char *what, int rc)
{
	struct cluster *cluster = client->cluster;
	uint32_t chaos = cluster->options.chaos;
	bool links = chaos & (CHAOS_LINKS | CHAOS_CUT | CHAOS_NODES |
			      CHAOS_CLIENT_PAUSE);

	switch (rc) {
	case 0:
		return 0;
	case -REEF_EHOSTDEAD:
	case -REEF_EFENCED:
		return rc;
	case -REEF_EINDOUBT:
		if (links)
			return 0;
		break;
	case -REEF_ENOLINK:
	case -ETIMEDOUT:
		if (chaos & (CHAOS_CUT | CHAOS_NODES))
			return 0;
		break;
	case -REEF_ELOST:
		if (cluster->nodes_died)
			return 0;
		break;
	case -ENOSPC:
		/* Memory of the dead comes back only after a while, and what a
		 * node has that drains or is away is not there for now. */
		if (cluster->options.scarce || chaos & ~CHAOS_BROKER)
			return 0;
		break;
	default:
		break;
	}
	cluster_fail(cluster, "client %u (session %08x): %s: %s", client->index,
		     client->session, what, reef_error_text(rc));
	return -REEF_EFENCED;
}

/* --- (a) blocks --- */

/* Errors of the blocks' space, which may be taken back. */
static int judge_block(struct client *client, const char *what, int rc)
{
	if (rc == -REEF_ELOST && client->cluster->reclaimed)
		return 0;
	return judge(client, what, rc);
}

static void fill(uint8_t *bytes, uint64_t size, uint64_t serial)
{
	struct reef_random random;
	uint64_t word = 0;

	reef_random_init(&random, serial);
	for (uint64_t i = 0; i < size; i++) {
		if (!(i & 7))
			word = reef_random_next(&random);
		bytes[i] = (uint8_t)(word >> 8 * (i & 7));
	}
}

static void forget_live(struct cluster *cluster, uint32_t index)
{
	cluster->live[index] = cluster->live[--cluster->live_count];
}

static bool find_live(struct cluster *cluster, uint64_t address,
		      uint32_t *index)
{
	for (uint32_t i = 0; i < cluster->live_count; i++) {
		if (cluster->live[i].address == address) {
			*index = i;
			return true;
		}
	}
	return false;
}

/* Nobody else has any of it, or whoever has it is gone. */
static int enter_live(struct client *client, const struct block *block)
{
	struct cluster *cluster = client->cluster;
	enum reef_session_view view;
	int rc;

	for (uint32_t i = 0; i < cluster->live_count;) {
		struct block other = cluster->live[i];
		uint32_t at;

		if (other.address >= block->address + block->size ||
		    block->address >= other.address + other.size) {
			i++;
			continue;
		}
		rc = reef_session_check(client->reef, other.session, &view);
		if (rc == -REEF_ENOLINK) {
			/* The broker is away: whoever allocated knew. */
			rc = reef_sleep(MILLISECOND);
			if (rc)
				return rc;
			i = 0;
			continue;
		}
		if (rc)
			return rc;
		if (!find_live(cluster, other.address, &at))
			continue; /* freed while we looked */
		if (view != REEF_VIEW_ENDED || other.kept) {
			cluster_fail(cluster,
				     "client %u was given %llx+%llx, session "
				     "%08x still has %llx+%llx%s",
				     client->index,
				     (unsigned long long)block->address,
				     (unsigned long long)block->size,
				     other.session,
				     (unsigned long long)other.address,
				     (unsigned long long)other.size,
				     other.kept ? " (kept)" : "");
			return -REEF_EFENCED;
		}
		forget_live(cluster, at);
	}
	if (cluster->live_count < BLOCKS_MAX)
		cluster->live[cluster->live_count++] = *block;
	return 0;
}

static void leave_live(struct cluster *cluster, const struct block *block)
{
	uint32_t at;

	if (find_live(cluster, block->address, &at) &&
	    cluster->live[at].serial == block->serial)
		forget_live(cluster, at);
}

static uint64_t random_size(struct client *client)
{
	uint64_t bits = 4 + below(client, SIZE_MAX_BITS - 4 + 1);

	if (below(client, 200) == 0)
		return 1100000 + below(client, 200000);
	return (1ull << (bits - 1)) + below(client, 1ull << (bits - 1));
}

static int step_alloc(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct block block = {.size = random_size(client),
			      .session = client->session};
	uint8_t *bytes;
	int rc;

	if (client->blocks_count == HAND_MAX)
		return 0;
	rc = reef_alloc(client->space, block.size, &block.address);
	if (rc)
		return judge_block(client, "alloc", rc);
	block.serial = ++cluster->serials;
	rc = enter_live(client, &block);
	if (rc)
		return judge(client, "look", rc);
	bytes = malloc(block.size);
	if (!bytes)
		return -ENOMEM;
	fill(bytes, block.size, block.serial);
	rc = reef_write(client->reef, block.address, bytes, block.size);
	free(bytes);
	if (rc) {
		leave_live(cluster, &block);
		/* In doubt or lost: give it back all the same. */
		if (rc != -REEF_EFENCED && rc != -REEF_EHOSTDEAD)
			reef_free(client->space, block.address, 0);
		return judge_block(client, "write", rc);
	}
	client->blocks[client->blocks_count++] = block;
	return 0;
}

static int verify(struct client *client, const struct block *block,
		  const char *who)
{
	uint8_t *bytes = malloc(2 * block->size);
	int rc;

	if (!bytes)
		return -ENOMEM;
	memset(bytes, 0, block->size);
	rc = reef_read(client->reef, block->address, bytes, block->size);
	fill(bytes + block->size, block->size, block->serial);
	if (!rc && memcmp(bytes, bytes + block->size, block->size)) {
		cluster_fail(client->cluster,
			     "client %u: %s block %llx+%llx (serial %llu) has "
			     "changed",
			     client->index, who,
			     (unsigned long long)block->address,
			     (unsigned long long)block->size,
			     (unsigned long long)block->serial);
		rc = -REEF_EFENCED;
	}
	free(bytes);
	return rc;
}

static void drop_block(struct client *client, uint32_t index)
{
	leave_live(client->cluster, &client->blocks[index]);
	client->blocks[index] = client->blocks[--client->blocks_count];
}

static int step_verify(struct client *client)
{
	uint32_t index;
	int rc;

	if (!client->blocks_count)
		return 0;
	index = (uint32_t)below(client, client->blocks_count);
	rc = verify(client, &client->blocks[index], "its own");
	if (rc == -REEF_ELOST)
		drop_block(client, index);
	return judge_block(client, "read", rc);
}

static int free_block(struct client *client, const struct block *block)
{
	return judge_block(client, "free",
			   reef_free(client->space, block->address, 0));
}

static int step_free(struct client *client)
{
	struct block block;
	uint32_t index;

	if (!client->blocks_count)
		return 0;
	index = (uint32_t)below(client, client->blocks_count);
	block = client->blocks[index];
	drop_block(client, index);
	return free_block(client, &block);
}

/* Keep a block and put it where another finds it. */
static int step_give(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct block block;
	uint32_t index, at;
	int rc;

	if (!client->blocks_count || cluster->exchange_count == 64)
		return 0;
	index = (uint32_t)below(client, client->blocks_count);
	block = client->blocks[index];
	client->blocks[index] = client->blocks[--client->blocks_count];
	rc = reef_keep(client->space, block.address);
	if (rc) {
		/* Kept or not: nobody can say, so nobody owns it. */
		cluster->leaks++;
		leave_live(cluster, &block);
		return judge_block(client, "keep", rc);
	}
	block.kept = true;
	if (find_live(cluster, block.address, &at))
		cluster->live[at].kept = true;
	cluster->exchange[cluster->exchange_count++] = block;
	return 0;
}

static int step_take(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct block block;
	uint32_t index;
	int rc;

	if (!cluster->exchange_count)
		return 0;
	index = (uint32_t)below(client, cluster->exchange_count);
	block = cluster->exchange[index];
	cluster->exchange[index] = cluster->exchange[--cluster->exchange_count];
	rc = verify(client, &block, "a kept");
	leave_live(cluster, &block);
	if (!rc)
		rc = reef_free(client->space, block.address, 0);
	if (rc)
		cluster->leaks++;
	return judge_block(client, "free of another's", rc);
}

/* --- (b) the board --- */

static uint64_t word_address(struct cluster *cluster, uint32_t index)
{
	return cluster->board + 8ull * index;
}

int workload_count(struct client *client, struct reef *reef)
{
	struct reef_random random = reef_random_split(&client->random, 2);
	struct cluster *cluster = client->cluster;
	uint64_t counter = 0, word, read;
	int rc = 0;

	while (!rc && !client->leaving) {
		rc = reef_sleep(reef_random_below(&random, 6 * MILLISECOND));
		if (rc || !cluster->board) /* there was no room for it yet */
			continue;
		word = (uint64_t)client->session << 32 | ++counter;
		rc = reef_write(reef, word_address(cluster, client->index),
				&word, sizeof(word));
		/* Nobody else writes there. */
		if (!rc)
			rc = reef_read(reef,
				       word_address(cluster, client->index),
				       &read, sizeof(read));
		if (!rc && read != word)
			cluster_fail(cluster,
				     "client %u wrote %llx to the board, and "
				     "finds %llx",
				     client->index, (unsigned long long)word,
				     (unsigned long long)read);
		rc = judge(client, "count on the board", rc);
	}
	return rc;
}

static struct ended *find_ended(struct cluster *cluster, uint32_t session)
{
	for (uint32_t i = 0; i < cluster->ended_count; i++)
		if (cluster->ended[i].session == session)
			return &cluster->ended[i];
	return NULL;
}

/* What the board says of a session that had ended before it was read; gone: and
 * by then its word was another's. */
static int note_ended(struct client *client, uint32_t session, uint32_t owner,
		      uint64_t word, bool gone)
{
	struct cluster *cluster = client->cluster;
	struct ended *ended = find_ended(cluster, session);
	bool is_gone = word >> 32 != session;

	if (!ended && cluster->ended_count == SESSIONS_MAX)
		return 0;
	if (!ended) {
		ended = &cluster->ended[cluster->ended_count++];
		*ended = (struct ended){.session = session, .client = owner};
		ended->word = word;
	}
	if (!is_gone && (gone || ended->word != word))
		cluster_fail(cluster,
			     "session %08x wrote after it had ended: %llx "
			     "after %llx",
			     session, (unsigned long long)word,
			     (unsigned long long)ended->word);
	ended->is_gone |= is_gone;
	return 0;
}

/* Look at another's word, and at its session. */
static int step_watch(struct client *client)
{
	struct cluster *cluster = client->cluster;
	uint32_t other = (uint32_t)below(client, cluster->options.clients);
	enum reef_session_view view;
	uint64_t word;
	struct ended *ended;
	uint32_t session;
	bool gone;
	int rc;

	rc = reef_read(client->reef, word_address(cluster, other), &word,
		       sizeof(word));
	session = (uint32_t)(word >> 32);
	if (rc || !session)
		return judge(client, "read of the board", rc);
	/* Known before the look began, or it does not count. */
	ended = find_ended(cluster, session);
	rc = reef_session_check(client->reef, session, &view);
	if (rc == -REEF_ENOLINK)
		return 0;
	if (rc)
		return judge(client, "look", rc);
	if (ended && view != REEF_VIEW_ENDED)
		cluster_fail(cluster, "session %08x had ended, and is back",
			     session);
	if (view != REEF_VIEW_ENDED)
		return 0;
	/* It has ended: read again, and from now on nothing may change. */
	gone = ended && ended->is_gone;
	rc = reef_read(client->reef, word_address(cluster, other), &word,
		       sizeof(word));
	if (rc)
		return judge(client, "read of the board", rc);
	return note_ended(client, session, other, word, gone);
}

/* --- (c) names --- */

static int step_own_name(struct client *client)
{
	uint64_t value, generation;
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "n%u", client->index);
	rc = reef_name_lookup(client->home, name, &value, &generation);
	if (rc == -ENOENT) {
		if (client->seat->name_done)
			cluster_fail(client->cluster,
				     "name %s was bound, and is gone", name);
		client->seat->name_tried = 1;
		rc = reef_name_bind(client->home, name, 1, NULL);
		if (!rc)
			client->seat->name_done = 1;
		/* A bind that a kill cut off may have happened. */
		if (rc == -EEXIST && client->seat->sessions > 1)
			rc = 0;
		return judge(client, "bind", rc);
	}
	if (rc)
		return judge(client, "look up", rc);
	if (value < client->seat->name_done || value > client->seat->name_tried)
		cluster_fail(client->cluster,
			     "name %s is %llu; %llu were acknowledged, %llu "
			     "tried",
			     name, (unsigned long long)value,
			     (unsigned long long)client->seat->name_done,
			     (unsigned long long)client->seat->name_tried);
	client->seat->name_tried = value + 1;
	rc = reef_name_replace(client->home, name, generation, value + 1, NULL);
	if (!rc)
		client->seat->name_done = value + 1;
	/* Another life's request may come first. */
	if (rc == -ESTALE && client->seat->sessions > 1)
		rc = 0;
	return judge(client, "replace", rc);
}

static int step_sum(struct client *client)
{
	struct cluster *cluster = client->cluster;
	uint64_t value, generation;
	int rc;

	rc = reef_name_lookup(client->home, "sum", &value, &generation);
	if (rc)
		return judge(client, "look up", rc);
	cluster->sum_tried++;
	rc = reef_name_replace(client->home, "sum", generation, value + 1,
			       NULL);
	if (!rc)
		cluster->sum_done++;
	if (rc == 0 || rc == -ESTALE) {
		/* Known: it counts, or it does not. */
		cluster->sum_tried -= rc ? 1 : 0;
		return 0;
	}
	return judge(client, "replace", rc);
}

/* --- (d) mailboxes --- */

static int step_mail(struct client *client)
{
	struct cluster *cluster = client->cluster;
	uint64_t place = word_address(
		cluster, CLIENTS_MAX + (uint32_t)below(client, MAILBOXES));
	uint64_t mail[2] = {MAIL_MAGIC | ++cluster->serials, 0};
	uint64_t old, before, address;
	int rc;

	rc = reef_alloc(client->home, sizeof(mail), &address);
	if (rc)
		return judge(client, "alloc", rc);
	reef_enter(client->reef);
	rc = reef_write(client->reef, address, mail, sizeof(mail));
	if (!rc)
		rc = reef_keep(client->home, address);
	if (!rc)
		rc = reef_read(client->reef, place, &old, sizeof(old));
	if (!rc)
		rc = reef_cas(client->reef, place, old, address, &before);
	reef_leave(client->reef);
	if (rc) {
		cluster->leaks++;
		return judge(client, "post mail", rc);
	}
	if (before != old)
		rc = reef_free(client->home, address, 0);
	else if (old)
		rc = reef_free(client->home, old, REEF_FREE_LATER);
	if (rc)
		cluster->leaks++;
	return judge(client, "free mail", rc);
}

/* Epochs pass quickly for a while; those inside stay safe. */
static int step_reclaim(struct client *client)
{
	int rc = reef_reclaim(client->home, 10 * MILLISECOND);

	return rc == -ENOSPC || rc == -ETIMEDOUT ? 0
						 : judge(client, "reclaim", rc);
}

/* Read mail, let others free it and allocate while we are inside, change it in
 * place, and read it again. */
static int stamp(struct client *client, struct reef *reef, uint64_t place,
		 uint64_t sleep_ns)
{
	uint64_t address, first = 0, second = 0;
	int rc;

	reef_enter(reef);
	rc = reef_read(reef, place, &address, sizeof(address));
	if (!rc && address) {
		rc = reef_read(reef, address, &first, sizeof(first));
		if (!rc)
			rc = reef_sleep(sleep_ns);
		if (!rc)
			rc = reef_faa(reef, address + 8, 1, NULL);
		if (!rc)
			rc = reef_read(reef, address, &second, sizeof(second));
	}
	reef_leave(reef);
	if (!rc && address &&
	    (first != second || first >> 32 != MAIL_MAGIC >> 32))
		cluster_fail(client->cluster,
			     "client %u: mail at %llx was reused under it",
			     client->index, (unsigned long long)address);
	return judge(client, "stamp mail", rc);
}

struct stamper {
	struct client *client;
	struct reef *reef;
	struct reef_random random;
	struct reef_fiber *fiber;
};

static int stamp_often(void *arg)
{
	struct stamper *stamper = arg;
	struct client *client = stamper->client;
	struct cluster *cluster = client->cluster;
	uint64_t place;
	int rc = 0;

	while (!rc && !client->leaving) {
		place = word_address(
			cluster,
			CLIENTS_MAX + (uint32_t)reef_random_below(
					      &stamper->random, MAILBOXES));
		if (cluster->board)
			rc = stamp(client, stamper->reef, place,
				   reef_random_below(&stamper->random,
						     cluster->options.ttl_ns));
		if (!rc)
			rc = reef_sleep(reef_random_below(&stamper->random,
							  5 * MILLISECOND));
	}
	return rc;
}

/* Several fibers of one handle, so that one or another is inside nearly
 * always. */
int workload_stamp(struct client *client, struct reef *reef)
{
	struct stamper stampers[STAMPERS];
	int rc = 0, one;

	for (uint32_t i = 0; i < STAMPERS; i++)
		stampers[i] = (struct stamper){
			.client = client,
			.reef = reef,
			.random = reef_random_split(&client->random, 3 + i),
		};
	for (uint32_t i = 1; i < STAMPERS && !rc; i++)
		rc = reef_fiber_spawn(reef_fiber_sched(), stamp_often,
				      &stampers[i], &stampers[i].fiber);
	if (!rc)
		rc = stamp_often(&stampers[0]);
	for (uint32_t i = 1; i < STAMPERS; i++) {
		if (!stampers[i].fiber)
			continue;
		reef_fiber_join(stampers[i].fiber, &one);
		rc = rc ? rc : one;
	}
	return rc;
}

/* --- sessions --- */

int workload_setup(struct cluster *cluster)
{
	(void)cluster; /* all zero is right */
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	(void)cluster;
}

/* Who steps is watched by the cluster. */
void workload_watch(struct cluster *cluster, uint64_t now_ns)
{
	(void)cluster;
	(void)now_ns;
}

static int make_board(struct client *client)
{
	static const uint64_t zero[BOARD_WORDS];
	struct cluster *cluster = client->cluster;
	uint64_t address;
	int rc;

	rc = reef_name_lookup(client->home, "board", &cluster->board, NULL);
	if (rc != -ENOENT)
		return rc;
	rc = reef_alloc(client->home, sizeof(zero), &address);
	if (!rc)
		rc = reef_write(client->reef, address, zero, sizeof(zero));
	if (!rc)
		rc = reef_keep(client->home, address);
	if (!rc)
		rc = reef_name_bind(client->home, "board", address, NULL);
	if (!rc)
		cluster->board = address;
	if (rc == -EEXIST) {
		rc = reef_free(client->home, address, 0);
		if (!rc)
			return reef_name_lookup(client->home, "board",
						&cluster->board, NULL);
	}
	cluster->leaks += rc != 0;
	return rc;
}

int workload_begin(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)cluster->options.copies,
	};
	int rc;

	client->blocks_count = 0;
	rc = reef_space_open(client->reef, HOME, &options, &client->home);
	client->space = client->home;
	if (!rc && cluster->options.revocable) {
		options.flags |= REEF_SPACE_REVOCABLE;
		options.copies = 1;
		rc = reef_space_open(client->reef, SPACE, &options,
				     &client->space);
	}
	if (rc)
		return judge(client, "open the spaces", rc);
	rc = reef_name_bind(client->home, "sum", 0, NULL);
	if (rc && rc != -EEXIST)
		return judge(client, "bind sum", rc);
	return judge(client, "the board", make_board(client));
}

void workload_forget(struct client *client, bool well)
{
	struct cluster *cluster = client->cluster;

	/* Who closes gives what it did not keep back by itself. Otherwise what
	 * is live stays so until somebody is given it: then the session must
	 * have ended. */
	for (uint32_t i = 0; well && i < cluster->live_count;) {
		if (cluster->live[i].session == client->session &&
		    !cluster->live[i].kept)
			forget_live(cluster, i);
		else
			i++;
	}
	client->blocks_count = 0;
}

int workload_step(struct client *client)
{
	static int (*const steps[])(struct client * client) = {
		step_alloc,   step_alloc,  step_alloc,	  step_alloc,
		step_verify,  step_verify, step_verify,	  step_free,
		step_free,    step_free,   step_give,	  step_take,
		step_watch,   step_watch,  step_watch,	  step_mail,
		step_mail,    step_mail,   step_own_name, step_sum,
		step_reclaim,
	};

	if (!client->cluster->board)
		return judge(client, "the board", make_board(client));
	return steps[below(client, sizeof(steps) / sizeof(steps[0]))](client);
}

/* --- the audit --- */

static int audit_sum(struct client *client)
{
	struct cluster *cluster = client->cluster;
	uint64_t value;
	int rc;

	rc = reef_name_lookup(client->home, "sum", &value, NULL);
	if (rc)
		return rc;
	if (value < cluster->sum_done || value > cluster->sum_tried)
		cluster_fail(cluster,
			     "sum is %llu: %llu were acknowledged, %llu tried",
			     (unsigned long long)value,
			     (unsigned long long)cluster->sum_done,
			     (unsigned long long)cluster->sum_tried);
	return 0;
}

/* Whatever is kept is freed, so that all of it must come back. */
static int audit_kept(struct client *client)
{
	struct cluster *cluster = client->cluster;
	uint64_t mail[MAILBOXES];
	int rc = 0;

	for (uint32_t i = 0; !rc && i < cluster->exchange_count; i++) {
		rc = verify(client, &cluster->exchange[i], "a kept");
		if (!rc)
			rc = reef_free(client->space,
				       cluster->exchange[i].address, 0);
		if (rc == -REEF_ELOST && cluster->reclaimed)
			rc = 0;
		rc = audit_settle(client, rc);
	}
	if (!rc)
		rc = reef_read(client->reef, word_address(cluster, CLIENTS_MAX),
			       mail, sizeof(mail));
	for (uint32_t i = 0; !rc && i < MAILBOXES; i++)
		if (mail[i])
			rc = audit_settle(client,
					  reef_free(client->home, mail[i],
						    REEF_FREE_LATER));
	return rc;
}

int workload_audit(struct client *client)
{
	struct cluster *cluster = client->cluster;
	int rc;

	if (cluster->nodes_died)
		return 0; /* what is lost cannot come back */
	rc = audit_kept(client);
	if (!rc)
		rc = audit_sum(client);
	if (!rc)
		/* What nobody knows whether it was freed may pin a chunk; so
		 * does the board. */
		rc = audit_memory(client, 16 * (1 + cluster->leaks));
	return rc;
}
