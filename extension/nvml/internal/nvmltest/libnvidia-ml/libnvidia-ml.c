// SPDX-License-Identifier: Apache-2.0

// A libnvidia-ml.so.1 with GPUs that a script describes. It has the functions of NVIDIA's management
// library (NVML) that the nvml extension calls, with the layouts and return codes of NVIDIA's public
// header nvml.h: https://docs.nvidia.com/deploy/nvml-api/
//
// The script is a file next to the library, with the name of the library and the suffix .script. Each
// call reads it again. A function without a statement for it returns NVML_ERROR_NOT_SUPPORTED. Each
// line has one statement:
//
//   clock US | clock real            time in µs since the epoch; real (default): the machine's clock
//   trace                            append each call to the file with the suffix .calls
//   fail FUNCTION CODE               FUNCTION returns CODE; * matches every function
//   hang FUNCTION PATH               FUNCTION opens the FIFO PATH.entered for writing,
//                                    then PATH.release for reading
//   device BUS-ID                    begin a GPU: the statements below, fail and hang apply to it
//     uuid UUID
//     name NAME
//     energy MJ [MW START]           energy counter; increases by MW from the time START
//     refresh US                     update interval of the energy counter
//     average MW                     power field 185
//     momentary MW                   power field 186
//     module MW                      both power fields in the scope of the module
//     power MW                       result of nvmlDeviceGetPowerUsage
//     limit MW                       highest power limit
//     utilization PERCENT            result of nvmlDeviceGetUtilizationRates
//     period US                      sampling period of loads, 166667 by default
//     buffer COUNT                   number of samples of loads that are kept, 100 by default
//     load PID SM [FROM [TO]]        a process that uses SM percent of the GPU from FROM to TO.
//                                    A GPU sample is the sum of the loads in one period. A process
//                                    sample is the mean of a load over the requested periods
//     instant TIMESTAMP PERCENT      a GPU sample
//     sample PID TIMESTAMP SM MEMORY ENCODER DECODER
//                                    a process sample
//     compute PID BYTES [INSTANCE]   a process in the list of compute, graphics or MPS processes
//     graphics PID BYTES [INSTANCE]
//     mps PID BYTES [INSTANCE]
//     stride BYTES                   size of an entry of these lists: 24 as in the header (default);
//                                    some drivers use 16 or 32
//     undersize COUNT                NVML_ERROR_INSUFFICIENT_SIZE requests COUNT entries too few
//     multiprocessors COUNT          number of multiprocessors of the largest MIG profile
//     activity US [PERCENT START]    busy time of the performance monitors; increases by PERCENT
//                                    of the time from START
//     mig on|off
//     slice UUID INSTANCE COUNT      begin a MIG device with COUNT multiprocessors: activity, fail
//                                    and hang apply to it

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// The ABI of nvml.h.

typedef int nvmlReturn_t;
enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_UNKNOWN = 999,
};

typedef void *nvmlDevice_t;
typedef struct sample *nvmlGpmSample_t;

typedef struct {
	char busIdLegacy[16];
	unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned pid;
	unsigned long long usedGpuMemory;
	unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
	unsigned pid;
	unsigned long long timeStamp;
	unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef union {
	double dVal;
	int siVal;
	unsigned uiVal;
	unsigned long ulVal;
	unsigned long long ullVal;
	signed long long sllVal;
	unsigned short usVal;
} nvmlValue_t;

enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1 };

typedef struct {
	unsigned long long timeStamp;
	nvmlValue_t sampleValue;
} nvmlSample_t;

typedef struct {
	unsigned fieldId, scopeId;
	long long timestamp, latencyUsec;
	int valueType;
	nvmlReturn_t nvmlReturn;
	nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
	unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
		sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
	unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount, encoderCount,
		jpegCount, ofaCount;
	unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
	unsigned metricId;
	nvmlReturn_t nvmlReturn;
	double value;
	struct {
		char *shortName, *longName, *unit;
	} metricInfo;
} nvmlGpmMetric_t;

typedef struct {
	unsigned version, numMetrics;
	nvmlGpmSample_t sample1, sample2;
	nvmlGpmMetric_t metrics[98]; // the length in the first version of the header
} nvmlGpmMetricsGet_t;

// The script.

enum { DEVICES = 16, SLICES = 8, PROCESSES = 512, SAMPLES = 1024, LOADS = 64, RULES = 32, NONE = -1 };

typedef unsigned long long u64;

struct curve { // a counter: base, increasing by rate per second from start
	int known;
	u64 base, rate, start;
};

struct rule {
	char function[64], path[256]; // path is empty for the statement fail
	int code;
};

struct load {
	unsigned pid, sm;
	u64 from, to;
};

struct instant {
	u64 at;
	unsigned percent;
};

struct process {
	char list; // c, g or m
	nvmlProcessInfo_t info;
};

struct slice {
	char uuid[96];
	unsigned instance, multiprocessors;
	struct curve activity;
	struct rule rules[RULES];
	int nrules;
};

struct device {
	char busId[32], uuid[96], name[96];
	struct curve energy, activity;
	u64 refresh, period;
	int average, momentary, module, power, limit, utilization, mig, multiprocessors, buffer, stride, undersize;
	struct instant instants[SAMPLES];
	nvmlProcessUtilizationSample_t samples[SAMPLES];
	struct load loads[LOADS];
	struct process processes[PROCESSES];
	struct slice slices[SLICES];
	struct rule rules[RULES];
	int ninstants, nsamples, nloads, nprocesses, nslices, nrules;
};

struct script {
	u64 clock; // 0 selects the machine's clock
	int trace;
	struct device devices[DEVICES];
	struct rule rules[RULES];
	int ndevices, nrules;
};

static _Atomic int initialized;

// sibling returns the path of the library with a suffix appended.
static void sibling(const char *suffix, char *path, size_t size)
{
	Dl_info info;
	if (!dladdr(&initialized, &info))
		abort();
	snprintf(path, size, "%s.%s", info.dli_fname, suffix);
}

static int is(const char *word, const char *other)
{
	return strcmp(word, other) == 0;
}

// parse_rule parses the statements fail and hang.
static void parse_rule(char *line, struct rule *rules, int *n)
{
	struct rule rule = {0};
	if (*n < RULES && (sscanf(line, "fail %63s %d", rule.function, &rule.code) == 2 ||
			sscanf(line, "hang %63s %255s", rule.function, rule.path) == 2))
		rules[(*n)++] = rule;
}

static void parse_curve(const char *line, struct curve *c)
{
	c->known = sscanf(line, "%*s %llu %llu %llu", &c->base, &c->rate, &c->start) >= 1;
}

static void parse_process(char list, const char *line, struct device *d)
{
	struct process p = {.list = list, .info = {.gpuInstanceId = -1, .computeInstanceId = -1}};
	if (d->nprocesses == PROCESSES)
		return;
	if (sscanf(line, "%*s %u %llu %u", &p.info.pid, &p.info.usedGpuMemory, &p.info.gpuInstanceId) == 3)
		p.info.computeInstanceId = 0;
	d->processes[d->nprocesses++] = p;
}

// parse_of_device parses a statement about a GPU.
static void parse_of_device(const char *word, const char *line, struct device *d)
{
	nvmlProcessUtilizationSample_t *sample = &d->samples[d->nsamples];
	struct load *load = &d->loads[d->nloads];
	struct instant *instant = &d->instants[d->ninstants];
	const struct { const char *word; int *value; } numbers[] = {
		{"average", &d->average}, {"momentary", &d->momentary}, {"module", &d->module}, {"power", &d->power}, {"limit", &d->limit},
		{"utilization", &d->utilization}, {"multiprocessors", &d->multiprocessors}, {"buffer", &d->buffer},
		{"stride", &d->stride}, {"undersize", &d->undersize},
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (is(word, numbers[i].word))
			sscanf(line, "%*s %d", numbers[i].value);
	if (is(word, "uuid"))
		sscanf(line, "%*s %95s", d->uuid);
	else if (is(word, "name"))
		sscanf(line, " name %95[^\n]", d->name);
	else if (is(word, "energy"))
		parse_curve(line, &d->energy);
	else if (is(word, "refresh"))
		sscanf(line, "%*s %llu", &d->refresh);
	else if (is(word, "period"))
		sscanf(line, "%*s %llu", &d->period);
	else if (is(word, "compute") || is(word, "graphics") || is(word, "mps"))
		parse_process(word[0], line, d);
	else if (is(word, "mig"))
		d->mig = strstr(line, " on") != NULL;
	else if (is(word, "sample") && d->nsamples < SAMPLES - 1)
		d->nsamples += sscanf(line, "%*s %u %llu %u %u %u %u", &sample->pid, &sample->timeStamp, &sample->smUtil,
			&sample->memUtil, &sample->encUtil, &sample->decUtil) >= 3;
	else if (is(word, "instant") && sscanf(line, "%*s %llu %u", &instant->at, &instant->percent) == 2)
		d->ninstants += d->ninstants < SAMPLES - 1;
	else if (is(word, "load") && d->nloads < LOADS - 1)
		d->nloads += sscanf(line, "%*s %u %u %llu %llu", &load->pid, &load->sm, &load->from, &load->to) >= 2;
}

// parse parses a line. d and s are the current GPU and slice, or NULL.
static void parse(struct script *w, char *line, struct device **d, struct slice **s)
{
	char word[32] = "", arg[96] = "";
	sscanf(line, "%31s %95s", word, arg);
	line += strspn(line, " \t");
	if (is(word, "clock"))
		w->clock = strtoull(arg, NULL, 10); // 0 for "real"
	else if (is(word, "trace"))
		w->trace = 1;
	else if (is(word, "fail") || is(word, "hang"))
		*s ? parse_rule(line, (*s)->rules, &(*s)->nrules) : *d ? parse_rule(line, (*d)->rules, &(*d)->nrules)
			: parse_rule(line, w->rules, &w->nrules);
	else if (is(word, "device") && w->ndevices < DEVICES) {
		*d = &w->devices[w->ndevices++], *s = NULL;
		snprintf((*d)->busId, sizeof (*d)->busId, "%.31s", arg);
		(*d)->average = (*d)->momentary = (*d)->module = (*d)->power = (*d)->limit = (*d)->utilization = (*d)->mig = NONE;
		(*d)->period = 166667, (*d)->buffer = 100, (*d)->stride = sizeof(nvmlProcessInfo_t);
	} else if (is(word, "slice") && *d && (*d)->nslices < SLICES) {
		*s = &(*d)->slices[(*d)->nslices++];
		sscanf(line, "%*s %95s %u %u", (*s)->uuid, &(*s)->instance, &(*s)->multiprocessors);
	} else if (is(word, "activity") && *d)
		parse_curve(line, *s ? &(*s)->activity : &(*d)->activity);
	else if (*d)
		parse_of_device(word, line, *d);
}

// read_script returns the parsed script, or NULL if the file cannot be opened.
static struct script *read_script(void)
{
	char path[4096], line[512];
	sibling("script", path, sizeof path);
	FILE *f = fopen(path, "r");
	if (!f)
		return NULL;
	struct script *w = calloc(1, sizeof *w);
	struct device *d = NULL;
	struct slice *s = NULL;
	while (fgets(line, sizeof line, f))
		parse(w, line, &d, &s);
	fclose(f);
	return w;
}

static u64 now(const struct script *w)
{
	struct timespec t;
	if (w->clock)
		return w->clock;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

static u64 value(const struct curve *c, u64 at)
{
	u64 elapsed = at > c->start ? at - c->start : 0;
	return c->base + c->rate * (elapsed / 1000000) + c->rate * (elapsed % 1000000) / 1000000;
}

// Handles of GPUs are 1 and up. The handle of a slice is the handle of its GPU plus a multiple of
// 256.
static nvmlDevice_t handle(int device, int slice)
{
	return (nvmlDevice_t)(size_t)(device + 1 + 256 * (slice + 1));
}

static nvmlReturn_t find(struct script *w, nvmlDevice_t h, struct device **d, struct slice **s)
{
	size_t device = (size_t)h % 256, slice = (size_t)h / 256;
	if (device == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (device > (size_t)w->ndevices)
		return NVML_ERROR_GPU_IS_LOST;
	*d = &w->devices[device - 1];
	if (slice > (size_t)(*d)->nslices + 1)
		return NVML_ERROR_NOT_FOUND;
	*s = slice > 1 ? &(*d)->slices[slice - 2] : NULL;
	return NVML_SUCCESS;
}

static void trace(const char *function, nvmlDevice_t h)
{
	char path[4096];
	sibling("calls", path, sizeof path);
	FILE *f = fopen(path, "a");
	if (!f)
		return;
	fprintf(f, "%s %zu\n", function, (size_t)h);
	fclose(f);
}

// rendezvous opens and closes a FIFO. It blocks until the other end is open.
static void rendezvous(const char *path, const char *suffix, int flags)
{
	char name[512];
	snprintf(name, sizeof name, "%s.%s", path, suffix);
	int fd = open(name, flags);
	if (fd >= 0)
		close(fd);
}

// obey applies the first rule for a function, and returns the return code. It returns -1 after a hang,
// because the script may have changed during the hang.
static int obey(const char *function, const struct rule *rules, int n)
{
	for (int i = 0; i < n; i++) {
		if (!is(rules[i].function, function) && !is(rules[i].function, "*"))
			continue;
		if (!rules[i].path[0])
			return rules[i].code;
		rendezvous(rules[i].path, "entered", O_WRONLY);
		rendezvous(rules[i].path, "release", O_RDONLY);
		return -1;
	}
	return NVML_SUCCESS;
}

struct call {
	struct script *script;
	struct device *device;
	struct slice *slice;
};

static void done(struct call *c)
{
	free(c->script);
}

// enter begins a call of a function: it reads the script and applies its rules. If of_device is set,
// it also applies the rules of the GPU and slice with the handle h.
static nvmlReturn_t enter(const char *function, nvmlDevice_t h, int of_device, struct call *c)
{
	int ret = -1;
	for (int first = 1; ret == -1; first = 0) {
		done(c);
		*c = (struct call){.script = read_script()};
		if (!c->script)
			return NVML_ERROR_UNKNOWN;
		if (c->script->trace && first)
			trace(function, h);
		ret = obey(function, c->script->rules, c->script->nrules);
		if (ret != NVML_SUCCESS || !of_device)
			continue;
		ret = find(c->script, h, &c->device, &c->slice);
		if (ret == NVML_SUCCESS)
			ret = obey(function, c->device->rules, c->device->nrules);
		if (ret == NVML_SUCCESS && c->slice)
			ret = obey(function, c->slice->rules, c->slice->nrules);
	}
	return ret == NVML_SUCCESS && !initialized && strncmp(function, "nvmlInit", 8) != 0 ? NVML_ERROR_UNINITIALIZED : ret;
}

#define ENTER(h, of_device) \
	__attribute__((cleanup(done))) struct call c = {0}; \
	nvmlReturn_t ret = enter(__func__, h, of_device, &c); \
	if (ret != NVML_SUCCESS) \
		return ret
#define ENTER_LIBRARY() ENTER(NULL, 0)
#define ENTER_DEVICE(h) ENTER(h, 1)

static nvmlReturn_t give(int value, unsigned *to)
{
	if (value == NONE)
		return NVML_ERROR_NOT_SUPPORTED;
	*to = value;
	return NVML_SUCCESS;
}

static nvmlReturn_t copy(const char *from, char *to, unsigned size)
{
	if (!from[0])
		return NVML_ERROR_NOT_SUPPORTED;
	if (strlen(from) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

// The functions.

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	ENTER_LIBRARY();
	initialized++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
	ENTER_LIBRARY();
	initialized++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
	ENTER_LIBRARY();
	initialized--;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	ENTER_LIBRARY();
	*count = c.script->ndevices;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	*device = handle(index, NONE);
	ENTER_DEVICE(*device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
	ENTER_DEVICE(device);
	return copy(c.slice ? c.slice->uuid : c.device->uuid, uuid, size);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
	ENTER_DEVICE(device);
	return copy(c.device->name, name, size);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	ENTER_DEVICE(device);
	memset(pci, 0, sizeof *pci);
	return copy(c.device->busId, pci->busId, sizeof pci->busId);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	ENTER_DEVICE(device);
	if (c.slice || !c.device->energy.known)
		return NVML_ERROR_NOT_SUPPORTED;
	u64 at = now(c.script);
	*energy = value(&c.device->energy, c.device->refresh ? at - at % c.device->refresh : at);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power)
{
	ENTER_DEVICE(device);
	return give(c.device->power, power);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	ENTER_DEVICE(device);
	for (int i = 0; i < count; i++) {
		int power = values[i].fieldId == 185 ? c.device->average : values[i].fieldId == 186 ? c.device->momentary : NONE;
		if (values[i].scopeId)
			power = values[i].scopeId == 1 ? c.device->module : NONE;
		values[i].timestamp = now(c.script);
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].nvmlReturn = give(power, &values[i].value.uiVal);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least, unsigned *most)
{
	ENTER_DEVICE(device);
	*least = 0;
	return give(c.device->limit, most);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	ENTER_DEVICE(device);
	if (c.slice || c.device->mig == 1)
		return NVML_ERROR_NOT_SUPPORTED;
	utilization->memory = 0;
	return give(c.device->utilization, &utilization->gpu);
}

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 earlier(u64 a, u64 b)
{
	return a < b ? a : b;
}

// first_instant returns the first instant after since that is still kept at the time at.
static u64 first_instant(const struct device *d, u64 since, u64 at)
{
	u64 kept = d->period * d->buffer;
	return later(since, at > kept ? at - kept : 0) / d->period * d->period + d->period;
}

// used returns the GPU time of a load in the period that ends at an instant, in hundredths of a
// microsecond.
static u64 used(const struct device *d, const struct load *load, u64 instant)
{
	u64 from = later(load->from, instant - d->period), to = load->to ? earlier(load->to, instant) : instant;
	return to > from ? load->sm * (to - from) : 0;
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, int kind, unsigned long long since, int *valueType, unsigned *count,
	nvmlSample_t *samples)
{
	ENTER_DEVICE(device);
	struct device *d = c.device;
	if (kind != 1 || d->mig == 1)
		return NVML_ERROR_NOT_SUPPORTED;
	u64 at = now(c.script);
	for (u64 i = first_instant(d, since, at); d->nloads > 0 && i <= at && d->ninstants < SAMPLES; i += d->period) {
		u64 sum = 0;
		for (int j = 0; j < d->nloads; j++)
			sum += used(d, &d->loads[j], i);
		d->instants[d->ninstants++] = (struct instant){i, earlier(100, (sum + d->period / 2) / d->period)};
	}
	*valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	unsigned n = 0;
	for (int i = 0; i < d->ninstants && n < *count; i++)
		if (d->instants[i].at > since)
			samples[n++] = (nvmlSample_t){.timeStamp = d->instants[i].at, .sampleValue.uiVal = d->instants[i].percent};
	*count = n;
	return n == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

// sample_load adds a process sample: the mean of a load over the periods after since.
static void sample_load(struct device *d, const struct load *load, u64 since, u64 at)
{
	u64 sum = 0, instants = 0, last = 0;
	for (u64 i = first_instant(d, since, at); i <= at; i += d->period, instants++) {
		u64 part = used(d, load, i);
		sum += part;
		if (part > 0)
			last = i;
	}
	if (last > 0 && d->nsamples < SAMPLES)
		d->samples[d->nsamples++] = (nvmlProcessUtilizationSample_t){
			.pid = load->pid, .timeStamp = last, .smUtil = (sum / instants + d->period / 2) / d->period};
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(
	nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned *count, unsigned long long since)
{
	ENTER_DEVICE(device);
	struct device *d = c.device;
	if (d->mig == 1)
		return NVML_ERROR_NOT_SUPPORTED;
	for (int i = 0; i < d->nloads; i++)
		sample_load(d, &d->loads[i], since, now(c.script));
	unsigned n = 0;
	for (int i = 0; i < d->nsamples; i++) {
		if (d->samples[i].timeStamp <= since)
			continue;
		if (samples && n < *count)
			samples[n] = d->samples[i];
		n++;
	}
	if (n == 0)
		return NVML_ERROR_NOT_FOUND;
	int enough = samples && n <= *count;
	*count = enough ? n : n > (unsigned)d->undersize ? n - d->undersize : 0;
	return enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

// list_processes fills a list of processes. The list of a slice has only the processes in the slice.
static nvmlReturn_t list_processes(struct call *c, char list, unsigned *count, char *to)
{
	struct device *d = c->device;
	unsigned n = 0;
	for (int i = 0; i < d->nprocesses; i++) {
		const struct process *p = &d->processes[i];
		if (p->list != list || (c->slice && p->info.gpuInstanceId != c->slice->instance))
			continue;
		if (n < *count && to) {
			memset(to + n * d->stride, 0, d->stride);
			memcpy(to + n * d->stride, &p->info, earlier(d->stride, sizeof p->info));
		}
		n++;
	}
	int enough = n <= *count;
	*count = enough ? n : n > (unsigned)d->undersize ? n - d->undersize : 0;
	return enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *infos)
{
	ENTER_DEVICE(device);
	return list_processes(&c, 'c', count, infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, void *infos)
{
	ENTER_DEVICE(device);
	return list_processes(&c, 'c', count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *infos)
{
	ENTER_DEVICE(device);
	return list_processes(&c, 'g', count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count, void *infos)
{
	ENTER_DEVICE(device);
	return list_processes(&c, 'g', count, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *infos)
{
	ENTER_DEVICE(device);
	return list_processes(&c, 'm', count, infos);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
	ENTER_DEVICE(device);
	*pending = c.device->mig == 1;
	return give(c.device->mig, current);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
	ENTER_DEVICE(device);
	*count = c.device->mig == NONE ? 0 : 7;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
	ENTER_DEVICE(device);
	if (c.device->mig != 1)
		return NVML_ERROR_NOT_SUPPORTED;
	if (index >= (unsigned)c.device->nslices)
		return NVML_ERROR_NOT_FOUND;
	*mig = handle((size_t)device - 1, index + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
	ENTER_DEVICE(device);
	return c.slice ? give(c.slice->instance, id) : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	ENTER_DEVICE(device);
	if (!c.slice) // "currently only supports MIG device handles"
		return NVML_ERROR_NOT_SUPPORTED;
	*attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = c.slice->multiprocessors};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile, nvmlGpuInstanceProfileInfo_t *info)
{
	ENTER_DEVICE(device);
	static const unsigned slices[] = {1, 2, 3, 4, 7}; // the profiles 0 to 4
	if (c.slice || profile >= sizeof slices / sizeof *slices || !c.device->multiprocessors)
		return NVML_ERROR_NOT_SUPPORTED;
	*info = (nvmlGpuInstanceProfileInfo_t){
		.id = profile, .sliceCount = slices[profile], .multiprocessorCount = c.device->multiprocessors * slices[profile] / 7};
	return NVML_SUCCESS;
}

struct sample {
	u64 busy, at;
};

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	ENTER_LIBRARY();
	*sample = calloc(1, sizeof **sample);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	free(sample);
	ENTER_LIBRARY();
	return NVML_SUCCESS;
}

static nvmlReturn_t take(const struct curve *activity, u64 at, nvmlGpmSample_t sample)
{
	if (!activity->known)
		return NVML_ERROR_NOT_SUPPORTED;
	struct curve busy = *activity;
	busy.rate *= 10000; // from percent to µs per second
	*sample = (struct sample){.busy = value(&busy, at), .at = at};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
	ENTER_DEVICE(device);
	return take(&c.device->activity, now(c.script), sample);
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned instance, nvmlGpmSample_t sample)
{
	ENTER_DEVICE(device);
	for (int i = 0; i < c.device->nslices; i++)
		if (c.device->slices[i].instance == instance)
			return take(&c.device->slices[i].activity, now(c.script), sample);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
	ENTER_LIBRARY();
	if (get->version != 1 || !get->sample1 || !get->sample2)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < get->numMetrics; i++) {
		u64 elapsed = get->sample2->at - get->sample1->at;
		int known = get->metrics[i].metricId == 1 && elapsed > 0;
		get->metrics[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		if (known)
			get->metrics[i].value = 100.0 * (get->sample2->busy - get->sample1->busy) / elapsed;
	}
	return NVML_SUCCESS;
}

// nvmltest_layout returns the sizes of the ABI's structures and the offsets of their members.
const char *nvmltest_layout(void)
{
	static char text[4096];
	size_t n = 0;
#define SIZE(type) n += snprintf(text + n, sizeof text - n, #type " %zu\n", sizeof(type))
#define OFFSET(type, member) n += snprintf(text + n, sizeof text - n, #type "." #member " %zu\n", offsetof(type, member))
	SIZE(nvmlPciInfo_t), OFFSET(nvmlPciInfo_t, busId);
	SIZE(nvmlUtilization_t), OFFSET(nvmlUtilization_t, gpu);
	SIZE(nvmlProcessInfo_t), OFFSET(nvmlProcessInfo_t, pid);
	SIZE(nvmlSample_t), OFFSET(nvmlSample_t, timeStamp), OFFSET(nvmlSample_t, sampleValue);
	SIZE(nvmlProcessUtilizationSample_t), OFFSET(nvmlProcessUtilizationSample_t, pid),
		OFFSET(nvmlProcessUtilizationSample_t, timeStamp), OFFSET(nvmlProcessUtilizationSample_t, smUtil),
		OFFSET(nvmlProcessUtilizationSample_t, encUtil), OFFSET(nvmlProcessUtilizationSample_t, decUtil);
	SIZE(nvmlFieldValue_t), OFFSET(nvmlFieldValue_t, fieldId), OFFSET(nvmlFieldValue_t, scopeId),
		OFFSET(nvmlFieldValue_t, valueType), OFFSET(nvmlFieldValue_t, nvmlReturn), OFFSET(nvmlFieldValue_t, value);
	SIZE(nvmlDeviceAttributes_t), OFFSET(nvmlDeviceAttributes_t, multiprocessorCount);
	SIZE(nvmlGpuInstanceProfileInfo_t), OFFSET(nvmlGpuInstanceProfileInfo_t, multiprocessorCount);
	SIZE(nvmlGpmMetric_t), OFFSET(nvmlGpmMetric_t, metricId), OFFSET(nvmlGpmMetric_t, nvmlReturn),
		OFFSET(nvmlGpmMetric_t, value);
	SIZE(nvmlGpmMetricsGet_t), OFFSET(nvmlGpmMetricsGet_t, version), OFFSET(nvmlGpmMetricsGet_t, numMetrics),
		OFFSET(nvmlGpmMetricsGet_t, sample1), OFFSET(nvmlGpmMetricsGet_t, sample2), OFFSET(nvmlGpmMetricsGet_t, metrics);
	return text;
}
