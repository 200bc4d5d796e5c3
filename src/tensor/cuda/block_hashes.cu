// XXH3-64 with a secret of 192 bytes, of blocks of more than 240 bytes in device memory: the values
// of XXH3_64bits_withSecret. One warp hashes one block.
//
// The algorithm consumes stripes of 64 bytes, 16 of them (1 KiB) between two scrambles. Within a KiB
// everything is addition, so its order is free: each lane of the warp takes 16 bytes of a stripe, and
// the warp adds up. The last KiB has up to 15 stripes and one that ends with the block and is keyed
// with other bytes of the secret.
//
// block_hashes.ptx is made of this file by tools/ptx.py.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define PRIME32_1 0x9E3779B1ULL
#define PRIME32_2 0x85EBCA77ULL
#define PRIME32_3 0xC2B2AE3DULL
#define PRIME64_1 0x9E3779B185EBCA87ULL
#define PRIME64_2 0xC2B2AE3D27D4EB4FULL
#define PRIME64_3 0x165667B19E3779F9ULL
#define PRIME64_4 0x85EBCA77C2B2AE63ULL
#define PRIME64_5 0x27D4EB2F165667C5ULL
#define FULL 0xffffffffu

struct block {
    u64 address;
    u64 bytes;
};

struct pair {
    u64 first, second;
};

// From any address. Not inlined: these are many instructions, and it is called rarely where speed
// matters.
__device__ __noinline__ static u64 load64(const u8 *at)
{
    u64 value = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        value |= (u64)at[i] << (8 * i);
    return value;
}

__device__ static pair load_any(const u8 *at)
{
    pair value = {load64(at), load64(at + 8)};
    return value;
}

__device__ static pair load_aligned(const u8 *at)
{
    ulonglong2 both = *(const ulonglong2 *)at;
    pair value = {both.x, both.y};
    return value;
}

// Of the secret, from a multiple of 8 bytes.
__device__ static pair load_key(const u8 *at)
{
    pair value = {((const u64 *)at)[0], ((const u64 *)at)[1]};
    return value;
}

__device__ static u64 multiply(u64 key)
{
    return (key & 0xffffffffULL) * (key >> 32);
}

// Adds 16 bytes of a stripe: each half goes to the other's accumulator as it is, and to its own
// multiplied.
__device__ static void accumulate(pair *sum, pair data, pair key)
{
    sum->first += data.second + multiply(data.first ^ key.first);
    sum->second += data.first + multiply(data.second ^ key.second);
}

__device__ static u64 scramble(u64 value, u64 key)
{
    value ^= value >> 47;
    value ^= key;
    return value * PRIME32_1;
}

// The sum over the lanes that hold the same accumulators.
__device__ static u64 gather(u64 value)
{
    value += __shfl_xor_sync(FULL, value, 4);
    value += __shfl_xor_sync(FULL, value, 8);
    value += __shfl_xor_sync(FULL, value, 16);
    return value;
}

template <bool aligned> __device__ static pair load(const u8 *at)
{
    return aligned ? load_aligned(at) : load_any(at);
}

template <bool aligned>
__device__ static u64 hash_block(const u8 *data, u64 bytes, const u8 *secret, u32 lane)
{
    const u64 starts[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
                           PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    const u32 quarter = lane & 3, stripe = lane >> 2; // which accumulators, which of 8 stripes
    const pair low = load_key(secret + 8 * stripe + 16 * quarter);
    const pair high = load_key(secret + 8 * stripe + 64 + 16 * quarter);
    const pair mix = load_key(secret + 128 + 16 * quarter);
    pair total = {0, 0};
    for (u32 i = 0; i < 4; i++)
        if (quarter == i) {
            total.first = starts[2 * i];
            total.second = starts[2 * i + 1];
        }
    const u64 whole = (bytes - 1) >> 10;
    const u8 *at = data + 16 * lane;
#pragma unroll(aligned ? 4 : 1)
    for (u64 i = 0; i < whole; i++, at += 1024) {
        pair sum = {0, 0};
        accumulate(&sum, load<aligned>(at), low);
        accumulate(&sum, load<aligned>(at + 512), high);
        total.first = scramble(total.first + gather(sum.first), mix.first);
        total.second = scramble(total.second + gather(sum.second), mix.second);
    }
    const u32 stripes = (u32)((bytes - 1 - (whole << 10)) >> 6);
    pair sum = {0, 0};
    if (stripe < stripes)
        accumulate(&sum, load<aligned>(at), low);
    if (stripe + 8 < stripes)
        accumulate(&sum, load<aligned>(at + 512), high);
    if (stripe == 0)
        accumulate(&sum, load_any(data + bytes - 64 + 16 * quarter),
                   load_any(secret + 121 + 16 * quarter));
    total.first += gather(sum.first);
    total.second += gather(sum.second);
    const pair end = load_any(secret + 11 + 16 * quarter);
    const u64 a = total.first ^ end.first, b = total.second ^ end.second;
    u64 result = (a * b) ^ __umul64hi(a, b);
    result += __shfl_xor_sync(FULL, result, 1);
    result += __shfl_xor_sync(FULL, result, 2);
    result += bytes * PRIME64_1;
    result ^= result >> 37;
    result *= 0x165667919E3779F9ULL;
    return result ^ (result >> 32);
}

extern "C" __global__ void ligament_hash_blocks(const u8 *secret, const block *blocks, u64 *hashes,
                                                u32 count)
{
    const u32 index = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    const u32 lane = threadIdx.x & 31;
    if (index >= count)
        return;
    const u8 *data = (const u8 *)blocks[index].address;
    const u64 bytes = blocks[index].bytes;
    const u64 hash = (blocks[index].address & 15) == 0 ? hash_block<true>(data, bytes, secret, lane)
                                                       : hash_block<false>(data, bytes, secret, lane);
    if (lane == 0)
        hashes[index] = hash;
}
