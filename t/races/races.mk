# The build with the race detector (make RACES=1, by ./check --races): t/races/README.md

RACES_DIR := $(CURDIR)/t/races
RACES_WRAPPED = LWLockAcquire LWLockConditionalAcquire LWLockRelease txn_horizon space_end_of_xact store_open \
	epoch_exit registry_drop registry_drop_locator ShmemInitStruct dsa_create_in_place dsa_allocate_extended dsa_free \
	dshash_create dshash_attach dshash_find dshash_find_or_insert dshash_release_lock dshash_delete_entry \
	dshash_seq_next dshash_seq_term memcpy memmove memset memcmp

OBJS += $(patsubst %.c,%.o,$(sort $(wildcard t/races/*.c)))
PG_CPPFLAGS += -include $(RACES_DIR)/builtins.h
# Warnings are those of the build without it: what is added makes others.
# Copies that the compiler writes out itself are none that it tells of.
PG_CFLAGS += -fsanitize=thread --param tsan-distinguish-volatile=1 --param tsan-instrument-func-entry-exit=0 \
	-Wno-error -Wno-tsan $(addprefix -fno-builtin-,memcpy memmove memset memcmp)
# The sanitizer's own library stays out.
SHLIB_LINK += -fno-sanitize=thread $(addprefix -Wl$(comma)--wrap=,$(RACES_WRAPPED))
comma := ,

t/races/%.o: override CFLAGS += -fno-sanitize=thread -fno-strict-aliasing
