/* The home node of a key. */
#ifndef LIGI_KEY_HOME_H
#define LIGI_KEY_HOME_H

#include "params/tables/table.h"

/* The node that initially owns a key and is notified of every relocation. */
uint32_t ligi_tables_home(const ligi_tables *tables, int64_t key);

#endif
