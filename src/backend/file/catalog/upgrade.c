#include "backend/file/catalog/upgrade.h"

lig_status ligi_upgrade(ligi_file_catalog *self)
{
    (void)self;
    return LIG_OK;
}
