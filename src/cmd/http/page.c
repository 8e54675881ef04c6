/* page.c - see page.h. */
#include "cmd/http/page.h"

#include <microhttpd.h>
#include <stdint.h>
#include <string.h>

#define POLICY                                                                 \
	"default-src 'none'; script-src 'self'; style-src 'self'; "            \
	"img-src 'self'; connect-src 'self'; base-uri 'none'; "                \
	"form-action 'none'; frame-ancestors 'none'; "                         \
	"require-trusted-types-for 'script'; trusted-types 'none'"

static const struct {
	const char *path, *type;
	const unsigned char *bytes;
	const size_t *size;
} files[] = {
	{"/", "text/html; charset=utf-8", page_html, &page_html_size},
	{"/page.js", "text/javascript; charset=utf-8", page_js, &page_js_size},
	{"/page.css", "text/css; charset=utf-8", page_css, &page_css_size},
	{"/icon.svg", "image/svg+xml", page_svg, &page_svg_size},
};

static const struct {
	const char *name, *value;
} headers[] = {
	{"Cache-Control", "no-store"},
	{"X-Content-Type-Options", "nosniff"},
	{"Content-Security-Policy", POLICY},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Referrer-Policy", "no-referrer"},
};

struct MHD_Response *page_make_response(const char *path)
{
	struct MHD_Response *response;
	size_t i = 0;

	while (strcmp(files[i].path, path) != 0)
		if (++i == sizeof(files) / sizeof(files[0]))
			return NULL;
	response = MHD_create_response_from_buffer(
		*files[i].size, (void *)(uintptr_t)files[i].bytes,
		MHD_RESPMEM_PERSISTENT);
	if (!response)
		return NULL;
	MHD_add_response_header(response, "Content-Type", files[i].type);
	for (i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		MHD_add_response_header(response, headers[i].name,
					headers[i].value);
	return response;
}
