/* libcurl alone against an S3 server: what a store on S3 is compared with.
 *
 *     s3_bare ENDPOINT BUCKET PREFIX COUNT BYTES SMALL
 *
 * writes one object of COUNT parts of BYTES bytes, 16 requests in flight, reads it again by ranges of
 * that size and removes it, then writes SMALL objects of 4 KiB one after the other. Keys are in
 * AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the region in AWS_REGION. Prints one line of JSON. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define FLYING 16
#define SMALL_BYTES 4096
#define ID_BYTES 256
#define ETAG_BYTES 64
#define ANSWER_BYTES 4096

typedef enum request { REQUEST_GET, REQUEST_PUT } request;

typedef struct slot {
    CURL *easy;
    char *memory;
    size_t at, bytes, number;
    char range[64], (*etags)[ETAG_BYTES];
} slot;

typedef struct bare {
    const char *endpoint, *bucket, *prefix;
    char keys[256], provider[128];
    struct curl_slist *headers;
    CURLM *multi;
    slot slots[FLYING];
    size_t count, bytes;
    char upload[ID_BYTES], (*etags)[ETAG_BYTES];
} bare;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static size_t send_bytes(char *out, size_t size, size_t count, void *context)
{
    slot *one = context;
    size_t bytes = size * count < one->bytes - one->at ? size * count : one->bytes - one->at;

    memcpy(out, one->memory + one->at, bytes);
    one->at += bytes;
    return bytes;
}

static size_t receive_bytes(char *data, size_t size, size_t count, void *context)
{
    slot *one = context;

    if (size * count > one->bytes - one->at)
        return 0;
    memcpy(one->memory + one->at, data, size * count);
    one->at += size * count;
    return size * count;
}

static size_t ignore(char *data, size_t size, size_t count, void *context)
{
    (void)data, (void)context;
    return size * count;
}

static size_t take_etag(char *data, size_t size, size_t count, void *context)
{
    slot *one = context;
    char line[ETAG_BYTES + 16];

    snprintf(line, sizeof line, "%.*s", (int)(size * count), data);
    if (strncasecmp(line, "etag:", 5) == 0)
        sscanf(line + 5, " %63[^\r\n]", one->etags[one->number]);
    return size * count;
}

static void prepare(const bare *self, CURL *easy, const char *url)
{
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, self->provider);
    curl_easy_setopt(easy, CURLOPT_USERPWD, self->keys);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, self->headers);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 1024L << 10);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, ignore);
}

static void prepare_put(slot *one)
{
    one->at = 0;
    curl_easy_setopt(one->easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(one->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)one->bytes);
    curl_easy_setopt(one->easy, CURLOPT_READFUNCTION, send_bytes);
    curl_easy_setopt(one->easy, CURLOPT_READDATA, one);
}

static void start(const bare *self, slot *one, request kind)
{
    char url[1024];
    size_t from = one->number * self->bytes;

    if (kind == REQUEST_PUT)
        snprintf(url, sizeof url, "%s/%s/%s/object?partNumber=%zu&uploadId=%s", self->endpoint,
                 self->bucket, self->prefix, one->number + 1, self->upload);
    else
        snprintf(url, sizeof url, "%s/%s/%s/object", self->endpoint, self->bucket, self->prefix);
    prepare(self, one->easy, url);
    curl_easy_setopt(one->easy, CURLOPT_PRIVATE, one);
    if (kind == REQUEST_PUT) {
        prepare_put(one);
        curl_easy_setopt(one->easy, CURLOPT_HEADERFUNCTION, take_etag);
        curl_easy_setopt(one->easy, CURLOPT_HEADERDATA, one);
    } else {
        one->at = 0;
        snprintf(one->range, sizeof one->range, "%zu-%zu", from, from + self->bytes - 1);
        curl_easy_setopt(one->easy, CURLOPT_RANGE, one->range);
        curl_easy_setopt(one->easy, CURLOPT_WRITEFUNCTION, receive_bytes);
        curl_easy_setopt(one->easy, CURLOPT_WRITEDATA, one);
    }
    curl_multi_add_handle(self->multi, one->easy);
}

/* All parts, FLYING at once; exits on a failure. */
static double pass(bare *self, request kind)
{
    size_t next = 0;
    double begun = seconds();
    int running, left;
    CURLMsg *message;

    for (; next < FLYING && next < self->count; next++) {
        self->slots[next].number = next;
        start(self, &self->slots[next], kind);
    }
    for (size_t done = 0; done < self->count;) {
        curl_multi_perform(self->multi, &running);
        while ((message = curl_multi_info_read(self->multi, &left)) != NULL) {
            slot *one;
            if (message->data.result != CURLE_OK) {
                fprintf(stderr, "s3_bare: %s\n", curl_easy_strerror(message->data.result));
                exit(1);
            }
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &one);
            curl_multi_remove_handle(self->multi, one->easy);
            done++;
            if (next < self->count) {
                one->number = next++;
                start(self, one, kind);
            }
        }
        if (done < self->count)
            curl_multi_poll(self->multi, NULL, 0, 1000, NULL);
    }
    return seconds() - begun;
}

static void perform(CURL *easy, const char *what)
{
    if (curl_easy_perform(easy) == CURLE_OK)
        return;
    fprintf(stderr, "s3_bare: %s failed\n", what);
    exit(1);
}

static size_t take_answer(char *data, size_t size, size_t count, void *context)
{
    char *answer = context;
    size_t at = strlen(answer), bytes = size * count;

    if (bytes >= ANSWER_BYTES - at)
        return 0;
    memcpy(answer + at, data, bytes);
    answer[at + bytes] = '\0';
    return bytes;
}

static void begin_upload(bare *self)
{
    char url[1024], answer[ANSWER_BYTES] = "";
    CURL *easy = self->slots[0].easy;

    snprintf(url, sizeof url, "%s/%s/%s/object?uploads=", self->endpoint, self->bucket,
             self->prefix);
    prepare(self, easy, url);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_answer);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, (void *)answer);
    perform(easy, "an upload");
    const char *id = strstr(answer, "<UploadId>");
    if (id == NULL || sscanf(id + 10, "%255[^<]", self->upload) != 1) {
        fprintf(stderr, "s3_bare: malformed answer\n");
        exit(1);
    }
}

static void complete_upload(bare *self)
{
    char url[1024], *list = malloc(self->count * (ETAG_BYTES + 80) + 128);
    CURL *easy = self->slots[0].easy;
    int at = sprintf(list, "<CompleteMultipartUpload>");

    for (size_t i = 0; i < self->count; i++)
        at += sprintf(list + at, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1,
                      self->etags[i]);
    sprintf(list + at, "</CompleteMultipartUpload>");
    snprintf(url, sizeof url, "%s/%s/%s/object?uploadId=%s", self->endpoint, self->bucket,
             self->prefix, self->upload);
    prepare(self, easy, url);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, list);
    perform(easy, "the completion of an upload");
    free(list);
}

static double write_object(bare *self)
{
    double begun = seconds();

    begin_upload(self);
    pass(self, REQUEST_PUT);
    complete_upload(self);
    return seconds() - begun;
}

static void remove_object(bare *self)
{
    char url[1024];
    CURL *easy = self->slots[0].easy;

    snprintf(url, sizeof url, "%s/%s/%s/object", self->endpoint, self->bucket, self->prefix);
    prepare(self, easy, url);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    perform(easy, "a removal");
}

static double put_small(bare *self, size_t number)
{
    char url[1024];
    slot *one = &self->slots[0];
    double begun = seconds();

    one->bytes = SMALL_BYTES;
    snprintf(url, sizeof url, "%s/%s/%s/%zu", self->endpoint, self->bucket, self->prefix, number);
    prepare(self, one->easy, url);
    prepare_put(one);
    perform(one->easy, "a small PUT");
    return seconds() - begun;
}

static int begin(bare *self)
{
    const char *key = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");
    const char *region = getenv("AWS_REGION");

    if (key == NULL || secret == NULL || region == NULL)
        return 0;
    snprintf(self->keys, sizeof self->keys, "%s:%s", key, secret);
    snprintf(self->provider, sizeof self->provider, "aws:amz:%s:s3", region);
    self->headers = curl_slist_append(NULL, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    self->multi = curl_multi_init();
    self->etags = calloc(self->count, sizeof *self->etags);
    if (self->multi == NULL || self->etags == NULL)
        return 0;
    for (size_t i = 0; i < FLYING; i++) {
        slot *one = &self->slots[i];
        one->easy = curl_easy_init();
        one->bytes = self->bytes;
        one->etags = self->etags;
        one->memory = malloc(self->bytes > SMALL_BYTES ? self->bytes : SMALL_BYTES);
        if (one->easy == NULL || one->memory == NULL)
            return 0;
        for (size_t at = 0; at < self->bytes; at++)
            one->memory[at] = (char)(at * 2654435761u >> 13);
    }
    return 1;
}

int main(int count, char **words)
{
    bare self = {0};

    if (count != 7)
        return 2;
    self.endpoint = words[1];
    self.bucket = words[2];
    self.prefix = words[3];
    self.count = strtoull(words[4], NULL, 10);
    self.bytes = strtoull(words[5], NULL, 10);
    size_t small = strtoull(words[6], NULL, 10);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    if (!begin(&self)) {
        fprintf(stderr, "s3_bare: no keys in the environment, or no memory\n");
        return 1;
    }
    double write_s = write_object(&self), read_s = pass(&self, REQUEST_GET);
    remove_object(&self);
    printf("{\"write_s\": %.6f, \"read_s\": %.6f, \"put_s\": [", write_s, read_s);
    for (size_t i = 0; i < small; i++)
        printf("%s%.6f", i == 0 ? "" : ", ", put_small(&self, i));
    puts("]}");
    return 0;
}
