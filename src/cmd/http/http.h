/* http.h - metrics and status of a server over HTTP: what `--http` starts.
 *
 *	server (up, broker, node) --page--> `reef http` <--GET-- anybody
 *	          ^                             |
 *	          +----- an operator's link ----+
 *
 * (1) HTTP is served by a process of its own (child.h): whoever connects,
 *     however often and however slowly, costs that process and not the pool.
 * (2) The broker is asked at most once a second for each thing that can be
 *     asked for, however many ask us; nothing is changed by a GET.
 * (3) What the server tells of itself is in a page of memory that both map: it
 *     writes there once a second, so a server that stands still is seen.
 *
 * Thread: of the page, the server's loop writes and everybody reads; each word
 * by itself. */
#ifndef REEF_CMD_HTTP_HTTP_H
#define REEF_CMD_HTTP_HTTP_H

#include <stdatomic.h>
#include <stdint.h>

struct http_page {
	_Atomic uint64_t beat_ns; /* when its loop last wrote; monotonic */
	_Atomic uint32_t has_broker, has_node;
	_Atomic int link; /* of its node: 0: registered with a broker */
	_Atomic uint64_t capacity, lent, huge; /* of its node; bytes */
	_Atomic uint32_t extents, links;
	_Atomic uint64_t cpu_ns, resident; /* of the server; bytes */
};

/* What HTTP counts of itself. */
struct http_stats {
	_Atomic uint64_t requests, refused;
	_Atomic uint64_t asked, ask_ns; /* of the broker */
	_Atomic uint32_t watchers, connections;
};

/* A server whose last beat is older does not work. */
#define HTTP_BEAT_MAX_NS UINT64_C(5000000000)

#endif
