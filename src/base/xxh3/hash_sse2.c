#define LIGI_HASH_NAME ligi_hash_sse2
#define LIGI_HASH_KIND "sse2"
#include "base/xxh3/hash_body.h"
