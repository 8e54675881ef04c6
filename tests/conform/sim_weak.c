/* sim_weak.c - until the simulator is there. */
#include "conform.h"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define W __attribute__((weak))
W int reef_sim_create(const struct reef_sim_options *o, struct reef_sim **s)
{
	(void)o;
	(void)s;
	return -ENOSYS;
}
W void reef_sim_destroy(struct reef_sim *s)
{
	(void)s;
}
W uint64_t reef_sim_trace_hash(const struct reef_sim *s)
{
	(void)s;
	return 0;
}
W int reef_sim_run(struct reef_sim *s, uint64_t l)
{
	(void)s;
	(void)l;
	return -ENOSYS;
}
W int reef_sim_host_add(struct reef_sim *s, const char *n,
			int (*m)(struct reef_sim_host *, void *), void *a,
			struct reef_sim_host **o)
{
	(void)s;
	(void)n;
	(void)m;
	(void)a;
	(void)o;
	return -ENOSYS;
}
W const char *reef_sim_host_name(const struct reef_sim_host *h)
{
	(void)h;
	return "";
}
W void reef_sim_host_kill(struct reef_sim_host *h)
{
	(void)h;
}
W void reef_sim_host_power_off(struct reef_sim_host *h)
{
	(void)h;
}
W void reef_sim_host_pause(struct reef_sim_host *h)
{
	(void)h;
}
W void reef_sim_host_resume(struct reef_sim_host *h)
{
	(void)h;
}
W void reef_sim_lose_link(struct reef_link *l)
{
	(void)l;
}
W const char *reef_sim_mutant_name(enum reef_sim_mutant m)
{
	(void)m;
	return "";
}
