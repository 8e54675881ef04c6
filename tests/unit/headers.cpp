/* The public headers are usable from C++: this compiles and links. */
#include <reef/error.h>
#include <reef/fiber.h>
#include <reef/file.h>
#include <reef/key.h>
#include <reef/map.h>
#include <reef/pages.h>
#include <reef/reef.h>
#include <reef/tree.h>
#include <reef/txn.h>

#include <cerrno>
#include <cstring>

int main()
{
	reef_sched *sched = nullptr;
	int error = reef_sched_create(nullptr, &sched);

	if (error)
		return 1;
	error = reef_fiber_spawn(
		sched, [](void *) -> int { return reef_sleep(1000); }, nullptr,
		nullptr);
	if (error || reef_sched_run(sched))
		return 1;
	reef_sched_destroy(sched);
	reef *none = nullptr;
	if (reef_open("nowhere", nullptr, &none) != -EINVAL)
		return 1;
	reef_close(none);
	return std::strcmp(reef_error_name(-REEF_EKEY), "REEF_EKEY") != 0;
}
