/* The home node of a key. */
#ifndef LIGI_KEY_HOME_H
#define LIGI_KEY_HOME_H

#include "params/tables/table.h"

/* The node that owns a key at first, and that is told of every relocation. */
uint32_t ligi_tables_home(const ligi_tables *tables, int64_t key);

#endif
