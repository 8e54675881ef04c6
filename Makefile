# The front door. Meson and Ninja do the work; tools/setup installs what is
# missing first (SETUP=: leaves that out).
PREFIX ?= /usr/local
DESTDIR ?=
SETUP ?= tools/setup
T ?=

.PHONY: all build run test soak bench lint fuzz install deb deb-test image clean help
.NOTPARALLEL:

all: build
	@echo
	@echo "Next: make run (see it work), make test, make help."

help:
	@echo "make build     build the program build/reef and the library"
	@echo "make run       build, and run a pool on this machine: reef up"
	@echo "make test      every test; make test T=NAME: those whose name has NAME"
	@echo "               make test T=quick: in two minutes, while you edit"
	@echo "make soak      the same tests for hours"
	@echo "make bench     measure beside the raw limit, UCX and libfabric"
	@echo "make lint      clang-format, clang-tidy, cppcheck, shellcheck, mandoc,"
	@echo "               tools/tidy"
	@echo "make fuzz      fuzz what parses bytes from outside; FUZZ_SECONDS=60 each"
	@echo "make install   PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)"
	@echo "make deb       Debian packages, in build-deb, and what lintian says"
	@echo "make deb-test  install those into a fresh Debian, and try them there"
	@echo "make image     a container's image of those, in build-image, with no registry"
	@echo "make clean     remove what the others made"

build:
	@$(SETUP) build
	@tools/configure build
	@ninja -C build

run: build
	@build/reef up

test:
	@$(SETUP) test
	@tools/test $(T)

soak:
	@$(SETUP) test
	@tools/test --soak $(T)

bench:
	@$(SETUP) bench
	@tools/configure build -Dpeers=enabled
	@ninja -C build
	@build/reef bench fabric $(BENCH)

lint:
	@$(SETUP) lint
	@tools/lint

fuzz:
	@$(SETUP) fuzz
	@tools/fuzz

install: build
	@tools/configure build --prefix=$(abspath $(PREFIX))
	@ninja -C build
	@DESTDIR="$(DESTDIR)" meson install -C build --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

deb:
	@$(SETUP) deb
	@tools/deb

deb-test: deb
	@tools/deb-test

image: deb
	@$(SETUP) image
	@tools/image

clean:
	rm -rf build build-deb build-image build-asan build-tsan build-lint build-fuzz build-node
