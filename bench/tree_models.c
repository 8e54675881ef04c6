/* tree_models.c - what other indexes do on the wire, on the cost model alone.
 *
 * A model has no keys: its clients do the operations that a lookup, an insert
 * or an update would, on leaves drawn evenly. One memory host has the leaves;
 * compute hosts have clients and, for DMTree, fingerprints.
 *
 *   Sherman (SIGMOD 2022): pages of 1 KiB; a lookup READs the leaf. A change
 *     takes the leaf's lock by CAS, READs the leaf, and WRITEs the entry and
 *     the lock in one batch. (Its locks are in the NIC's own memory, which the
 *     cost model does not have.) Entries have two versions of a byte.
 *   CHIME (SOSP 2024): leaves of 64 entries as hopscotch tables: a lookup READs
 *     a neighbourhood of 8 entries with its copy of the leaf's metadata (10
 *     bytes), in two parts where it goes around the end. A change takes the
 *     lock by a CAS, which brings the map of vacancies along, READs the
 *     neighbourhood, and WRITEs the entry and the lock in one batch. Entries
 *     have a version and a bitmap, 3 bytes; each line of 64 bytes a version.
 *   DMTree (FAST 2026): a table of fingerprints for each leaf of 64 entries, in
 *     the memory of one of the compute hosts, and copied by those that look
 *     keys up. A lookup with a copy READs the entry; without one, the table
 *     first. A change takes the table's lock by CAS, READs the table, an update
 *     READs the entry, WRITEs the entry to the memory host, and WRITEs the
 *     table, with the lock: one round trip after the other, as their code does.
 *     Entries have 8 bytes beside key and value.
 *
 * All of them remember the level above the leaves, 16 bytes a leaf (DMTree: 32,
 * and a byte a key). Where that is more than the budget, a lookup finds its
 * leaf in it by the share that fits; else it READs an inner page first. Nodes
 * are as full as random inserts leave them; an insert splits its leaf as often
 * as that says: a new leaf, the old one, and an entry in the parent under its
 * lock.
 *
 * Left out, in their favour: retries of readers that met a half-written leaf;
 * full hopscotch tables; allocation; stale copies of fingerprints. Left out, to
 * their disadvantage: handing a lock on among the clients of one host, and hot
 * keys, of which there are none here. */
#include "bench/trees_run.h"
#include "bench/units.h"
#include "fabric/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LIMIT_NS (600 * SECOND) /* of virtual time */
#define HOSTS_MAX 64u
#define LEAVES 32768u /* enough that two clients rarely meet */
#define LEAF_ROOM 8192u
#define PAGE 1024u /* an inner one's bytes */
#define KEY 8u
#define SPAN 64u	   /* entries of a leaf: CHIME, DMTree */
#define NEIGHBOURHOOD 8u   /* entries */
#define CHIME_METADATA 10u /* a copy for each neighbourhood */
#define PRINTS 80u	   /* bytes of a leaf's table: DMTree */
#define BLINK_NS 200	   /* between two attempts at a lock */

struct models;

/* A host on the wire. Number 0 has the leaves. */
struct machine {
	struct models *models;
	uint32_t number;
	char name[16], address[32];
	struct reef_memory memory;
	uint64_t key;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *links[HOSTS_MAX];
	struct reef_remote *remotes[HOSTS_MAX];
	struct trees_host host;
};

struct models {
	struct trees_field *field;
	struct reef_sim *sim;
	struct reef_cost_model *model;
	struct reef_count count;
	uint32_t machines, listening, connected, done;
	struct machine *machine;
	/* What the index is like: */
	uint32_t entry; /* bytes */
	uint32_t leaf;	/* bytes */
	double keys;	/* in a leaf */
	double cache;	/* bytes a key that it would remember */
	int error;
};

/* --- operations --- */

/* A place: a leaf's bytes, or its lock, which lies behind them. */
static uint64_t leaf_at(uint64_t leaf)
{
	return leaf * LEAF_ROOM;
}

static uint64_t lock_at(uint64_t leaf)
{
	return leaf * LEAF_ROOM + LEAF_ROOM - 64;
}

static struct reef_op op_of(struct machine *machine, uint32_t to, uint8_t kind,
			    uint64_t offset, uint32_t length, void *local)
{
	return (struct reef_op){
		.kind = kind,
		.length = length,
		.remote = machine->remotes[to],
		.offset = offset,
		.local = local,
	};
}

static int do_ops(struct machine *machine, uint32_t to, struct reef_op *ops,
		  uint32_t count)
{
	struct reef_batch batch = {
		.link = machine->links[to],
		.ops = ops,
		.count = count,
	};

	return reef_run(machine->queue, &batch);
}

static int do_one(struct machine *machine, uint32_t to, uint8_t kind,
		  uint64_t offset, uint32_t length)
{
	uint8_t bytes[LEAF_ROOM] = {0};
	struct reef_op op = op_of(machine, to, kind, offset, length, bytes);

	return do_ops(machine, to, &op, 1);
}

static int take_lock(struct machine *machine, uint32_t to, uint64_t leaf,
		     struct reef_random *random)
{
	struct reef_op op =
		op_of(machine, to, REEF_CAS, lock_at(leaf), 8, NULL);
	int rc;

	op.operand = 1;
	rc = do_ops(machine, to, &op, 1);
	while (!rc && op.result) {
		rc = reef_sleep(reef_random_below(random, BLINK_NS));
		op.compare = 0;
		rc = rc ? rc : do_ops(machine, to, &op, 1);
	}
	return rc;
}

/* WRITE so many bytes of a leaf, and its lock behind them, in one batch. */
static int write_and_give(struct machine *machine, uint32_t to, uint64_t leaf,
			  uint32_t length)
{
	uint8_t bytes[LEAF_ROOM] = {0};
	struct reef_op ops[2] = {
		op_of(machine, to, REEF_WRITE, leaf_at(leaf), length, bytes),
		op_of(machine, to, REEF_WRITE, lock_at(leaf), 8, bytes),
	};

	return do_ops(machine, to, ops, 2);
}

/* READ an inner page, for the share of lookups that do not find their leaf in
 * what the host remembers. */
static int find_leaf(struct machine *machine, struct reef_random *random)
{
	const struct models *models = machine->models;
	double share = models->field->load.cache / models->cache;

	if (reef_random_unit(random) < share)
		return 0;
	return do_one(machine, 0, REEF_READ,
		      leaf_at(reef_random_below(random, LEAVES)), PAGE);
}

/* Split a leaf, one insert in as many as make half a leaf. */
static int split_leaf(struct machine *machine, struct reef_random *random)
{
	const struct models *models = machine->models;
	uint64_t fresh, parent;
	int rc;

	if (reef_random_unit(random) * models->keys * 0.72 >= 1)
		return 0;
	fresh = reef_random_below(random, LEAVES);
	parent = reef_random_below(random, LEAVES);
	rc = do_one(machine, 0, REEF_WRITE, leaf_at(fresh), models->leaf);
	rc = rc ? rc
		: do_one(machine, 0, REEF_WRITE, leaf_at(fresh), models->leaf);
	rc = rc ? rc : take_lock(machine, 0, parent, random);
	rc = rc ? rc : do_one(machine, 0, REEF_READ, leaf_at(parent), PAGE);
	return rc ? rc : write_and_give(machine, 0, parent, 2 * KEY);
}

/* --- Sherman --- */

static int sherman_step(struct machine *machine, struct reef_random *random)
{
	const struct models *models = machine->models;
	enum trees_work work = models->field->load.work;
	uint64_t leaf = reef_random_below(random, LEAVES);
	int rc = find_leaf(machine, random);

	if (!rc && work != TREES_LOOKUP)
		rc = take_lock(machine, 0, leaf, random);
	rc = rc ? rc : do_one(machine, 0, REEF_READ, leaf_at(leaf), PAGE);
	if (rc || work == TREES_LOOKUP)
		return rc;
	rc = write_and_give(machine, 0, leaf, models->entry);
	return rc || work == TREES_UPDATE ? rc : split_leaf(machine, random);
}

/* --- CHIME --- */

/* READ a neighbourhood; one that goes around the end is in two parts. */
static int read_neighbourhood(struct machine *machine, uint64_t leaf,
			      struct reef_random *random)
{
	const struct models *models = machine->models;
	uint32_t first = (uint32_t)reef_random_below(random, SPAN);
	uint32_t front =
		first + NEIGHBOURHOOD > SPAN ? SPAN - first : NEIGHBOURHOOD;
	uint32_t size = front * models->entry + CHIME_METADATA;
	uint8_t bytes[LEAF_ROOM] = {0};
	struct reef_op ops[2] = {
		op_of(machine, 0, REEF_READ, leaf_at(leaf), size + size / 63,
		      bytes),
	};

	size = (NEIGHBOURHOOD - front) * models->entry + CHIME_METADATA;
	ops[1] = op_of(machine, 0, REEF_READ, leaf_at(leaf), size + size / 63,
		       bytes);
	return do_ops(machine, 0, ops, front < NEIGHBOURHOOD ? 2 : 1);
}

static int chime_step(struct machine *machine, struct reef_random *random)
{
	const struct models *models = machine->models;
	enum trees_work work = models->field->load.work;
	uint64_t leaf = reef_random_below(random, LEAVES);
	int rc = find_leaf(machine, random);

	if (!rc && work != TREES_LOOKUP)
		rc = take_lock(machine, 0, leaf, random);
	rc = rc ? rc : read_neighbourhood(machine, leaf, random);
	if (rc || work == TREES_LOOKUP)
		return rc;
	rc = write_and_give(machine, 0, leaf, models->entry);
	return rc || work == TREES_UPDATE ? rc : split_leaf(machine, random);
}

/* --- DMTree --- */

static int dmtree_change(struct machine *machine, uint64_t leaf, uint32_t owner,
			 struct reef_random *random)
{
	const struct models *models = machine->models;
	enum trees_work work = models->field->load.work;
	int rc = take_lock(machine, owner, leaf, random);

	rc = rc ? rc : do_one(machine, owner, REEF_READ, leaf_at(leaf), PRINTS);
	if (!rc && work == TREES_UPDATE)
		rc = do_one(machine, 0, REEF_READ, leaf_at(leaf),
			    models->entry);
	rc = rc ? rc
		: do_one(machine, 0, REEF_WRITE, leaf_at(leaf), models->entry);
	/* An insert WRITEs the table with the lock in it, an update the lock.
	 */
	rc = rc ? rc
		: do_one(machine, owner, REEF_WRITE, lock_at(leaf),
			 work == TREES_UPDATE ? 8 : 64);
	return rc || work == TREES_UPDATE ? rc : split_leaf(machine, random);
}

static int dmtree_step(struct machine *machine, struct reef_random *random)
{
	const struct models *models = machine->models;
	uint64_t leaf = reef_random_below(random, LEAVES);
	uint32_t owner = 1 + (uint32_t)leaf % (models->machines - 1);
	double share = models->field->load.cache / models->cache;
	int rc = find_leaf(machine, random);

	if (rc || models->field->load.work != TREES_LOOKUP)
		return rc ? rc : dmtree_change(machine, leaf, owner, random);
	if (reef_random_unit(random) >= share)
		rc = do_one(machine, owner, REEF_READ, leaf_at(leaf), PRINTS);
	return rc ? rc
		  : do_one(machine, 0, REEF_READ, leaf_at(leaf), models->entry);
}

/* --- the hosts --- */

static int step(struct trees_host *host, struct reef_random *random)
{
	switch (host->field->load.index) {
	case TREES_SHERMAN:
		return sherman_step(host->index, random);
	case TREES_CHIME:
		return chime_step(host->index, random);
	default:
		return dmtree_step(host->index, random);
	}
}

static double cache(struct trees_host *host)
{
	const struct trees_load *load = &host->field->load;
	struct machine *machine = host->index;
	double needed = machine->models->cache;

	return load->keys * (needed < load->cache ? needed : load->cache);
}

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	for (int i = 0; i < REEF_KEY_SIZE; i++)
		key[i] = 0;
	return 0;
}

static int connect_all(struct machine *machine)
{
	struct models *models = machine->models;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < models->machines; i++) {
		const struct reef_connect_options options = {
			.session = (machine->number + 1) << 16 | (i + 1),
			.identity = "model",
		};

		rc = reef_connect(machine->queue, models->machine[i].address,
				  &options, &machine->links[i]);
		if (!rc)
			rc = reef_attach(machine->queue, machine->links[i],
					 models->machine[i].key,
					 &machine->remotes[i]);
	}
	return rc;
}

/* Wait until a counter is at `all`; whoever waits serves its memory. */
static int wait_for(const uint32_t *counter, uint32_t all)
{
	int rc = 0;

	while (!rc && *counter < all)
		rc = reef_sleep(SECOND / 1000);
	return rc;
}

static int serve_and_work(struct machine *machine)
{
	struct models *models = machine->models;
	uint32_t workers = models->machines - 1;
	int rc = 0;

	models->listening++;
	rc = wait_for(&models->listening, models->machines);
	if (!rc && machine->number) {
		rc = connect_all(machine);
		models->connected++;
		rc = rc ? rc : wait_for(&models->connected, workers);
		rc = rc ? rc : trees_host_run(&machine->host);
	}
	if (machine->number)
		models->done++;
	if (rc && !models->error)
		models->error = rc;
	/* Others may still need this memory. */
	while (!models->error && models->done < workers)
		if (reef_sleep(SECOND / 1000))
			break;
	if (rc)
		reef_sched_stop(reef_sim_sched(models->sim));
	for (uint32_t i = 0; i < models->machines; i++)
		reef_link_close(machine->links[i]);
	return rc;
}

static int machine_main(struct reef_sim_host *host, void *arg)
{
	struct machine *machine = arg;
	struct models *models = machine->models;
	struct reef_fabric_options options = {
		.sim_host = host,
		.links_max = 4 * HOSTS_MAX,
		.depth_max = 4096,
	};
	const struct reef_listen_options listen = {.credential = credential};
	struct reef_listener *listener;
	struct reef_region *region;
	int rc = reef_fabric_open("sim", &options, &machine->fabric);

	if (rc)
		return rc;
	rc = reef_cost_push(machine->fabric, models->model, machine->name);
	if (!rc)
		rc = reef_count_push(machine->fabric, &models->count);
	if (!rc)
		rc = reef_queue_open(machine->fabric, NULL, &machine->queue);
	if (rc)
		goto err_fabric;
	machine->memory.domain = reef_fabric_domain(machine->fabric);
	rc = reef_expose(machine->fabric, &machine->memory, &region);
	if (!rc)
		rc = reef_listen(machine->queue, machine->address, &listen,
				 &listener);
	if (!rc) {
		machine->key = reef_region_key(region);
		rc = serve_and_work(machine);
		reef_listener_close(listener);
	}
	reef_queue_close(machine->queue);
err_fabric:
	reef_fabric_close(machine->fabric);
	return rc;
}

/* --- around it --- */

/* How large the parts of the index are; the factors are how full random inserts
 * leave leaves that are split when full: ln 2, and CHIME's at about nine
 * tenths. */
static void fill_sizes(struct models *models)
{
	const struct trees_load *load = &models->field->load;
	uint32_t pair = KEY + load->value_size;

	switch (load->index) {
	case TREES_SHERMAN:
		models->entry = pair + 2;
		models->leaf = PAGE;
		models->keys = (PAGE - 48.0) / models->entry * 0.69;
		models->cache = 16 / models->keys;
		break;
	case TREES_CHIME:
		models->entry = pair + 3;
		models->leaf = SPAN * models->entry +
			       SPAN / NEIGHBOURHOOD * CHIME_METADATA;
		models->leaf += models->leaf / 63;
		models->keys = SPAN * 0.62;
		models->cache = 16 / models->keys;
		break;
	default:
		models->entry = pair + 8;
		models->leaf = SPAN * models->entry + 64;
		models->keys = SPAN * 0.69;
		models->cache = (32 + PRINTS) / models->keys;
		break;
	}
}

/* Pages are touched only where an operation goes, so this costs little. */
static int map_memory(struct machine *machine)
{
	uint64_t size = (uint64_t)LEAVES * LEAF_ROOM;
	void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -errno;
	machine->memory = (struct reef_memory){
		.base = base,
		.size = size,
		.fd = -1,
		.backing = REEF_BACKING_SIMULATED,
	};
	return 0;
}

static int add_machine(struct models *models, uint32_t number)
{
	struct machine *machine = &models->machine[number];
	int rc = map_memory(machine);

	machine->models = models;
	machine->number = number;
	machine->host = (struct trees_host){
		.field = models->field,
		.number = number - 1,
		.step = step,
		.cache = cache,
		.index = machine,
	};
	snprintf(machine->name, sizeof(machine->name), "host%u", number);
	snprintf(machine->address, sizeof(machine->address), "sim:host%u/1",
		 number);
	return rc ? rc
		  : reef_sim_host_add(models->sim, machine->name, machine_main,
				      machine, NULL);
}

static uint64_t models_now_ns(const struct trees_field *field)
{
	const struct models *models = field->place;

	return reef_sched_now_ns(reef_sim_sched(models->sim));
}

static struct reef_counts models_counts(const struct trees_field *field)
{
	const struct models *models = field->place;

	return reef_count_read(&models->count);
}

static int run_sim(struct models *models)
{
	const struct trees_load *load = &models->field->load;
	struct reef_sim_options options = {.seed = load->seed, .calm = true};
	int rc = reef_cost_model_create(&load->cost, &models->model);

	if (rc)
		return rc;
	rc = reef_sim_create(&options, &models->sim);
	if (!rc) {
		for (uint32_t i = 0; !rc && i < models->machines; i++)
			rc = add_machine(models, i);
		rc = rc ? rc : reef_sim_run(models->sim, LIMIT_NS);
		reef_sim_destroy(models->sim);
	}
	reef_cost_model_destroy(models->model);
	for (uint32_t i = 0; i < models->machines; i++)
		if (models->machine[i].memory.base)
			munmap(models->machine[i].memory.base,
			       models->machine[i].memory.size);
	return models->error ? models->error : rc;
}

int tree_models_run(struct trees_field *field)
{
	struct models models = {
		.field = field,
		.machines = field->load.hosts + 1,
	};
	int rc;

	fill_sizes(&models);
	if (models.machines > HOSTS_MAX || models.leaf > LEAF_ROOM - 128)
		return -EINVAL;
	models.machine = calloc(models.machines, sizeof(models.machine[0]));
	if (!models.machine)
		return -ENOMEM;
	field->place = &models;
	field->now_ns = models_now_ns;
	field->counts = models_counts;
	rc = run_sim(&models);
	free(models.machine);
	return rc;
}
