# sofort: PGXS build.
#
#   make                     build sofort.so (warnings are errors)
#   make install             the extension
#   make install-test        also sofort_test: stop points and counters for tests
#   make with_llvm=yes       also build bitcode for inlining by the JIT
#   make COPT=-DUSE_ASSERT_CHECKING=1      with assertions
#   make RACES=1             with the race detector of t/races
#
# `./check` does all this in a private copy and runs every test.

MODULE_big = sofort
EXTENSION = sofort
DATA = sofort--1.0.sql
PGFILEDESC = "sofort - tables in persistent memory"

OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c src/*/*.c) $(wildcard sofort_test/*.c)))

# Debian's PGXS tracks no headers; -MMD writes a .d file beside each object.
PG_CPPFLAGS = -I$(CURDIR)/include -MMD -MP
PG_CFLAGS = -Wextra -Werror -Wno-unused-parameter
SHLIB_LINK = -lpmemobj -lpmem
EXTRA_CLEAN = $(OBJS:.o=.d)

ifdef RACES
include t/races/races.mk
endif

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION = $(patsubst specs/%.spec,%,$(sort $(wildcard specs/*.spec)))
REGRESS_OPTS = --load-extension=sofort --load-extension=sofort_test
ISOLATION_OPTS = $(REGRESS_OPTS)

# Bitcode doubles the build time; Makefile.global would switch it on.
ifneq ($(origin with_llvm),command line)
override with_llvm = no
endif

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

ifeq ($(filter 15 17 18,$(MAJORVERSION)),)
$(error sofort needs PostgreSQL 15, 17 or 18, but $(PG_CONFIG) belongs to $(MAJORVERSION): set PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config)
endif

-include $(OBJS:.o=.d)

.PHONY: install-test uninstall-test
install-test: install
	$(INSTALL_DATA) $(srcdir)/sofort_test/sofort_test.control $(srcdir)/sofort_test/sofort_test--1.0.sql '$(DESTDIR)$(datadir)/extension/'

uninstall-test:
	rm -f '$(DESTDIR)$(datadir)/extension/sofort_test.control' '$(DESTDIR)$(datadir)/extension/sofort_test--1.0.sql'
