/* Which node owns a row, as far as this node knows: a hint. */
#ifndef LIGI_ROW_LOCATION_H
#define LIGI_ROW_LOCATION_H

#include "params/tables/table.h"

/* The last known location; initially the home. */
ligi_row_location ligi_tables_location(const ligi_tables *tables, ligi_entry entry);
/* No-op and 0 unless `moves` is greater than the known count. */
int ligi_tables_location_update(ligi_tables *tables, ligi_entry entry, ligi_row_location location);

#endif
