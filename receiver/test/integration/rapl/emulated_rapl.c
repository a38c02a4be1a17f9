// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Energy registers for the kernel's own RAPL driver, on a machine without RAPL.
 *
 * intel_rapl_common reads registers through callbacks of the module that registers an interface with it.
 * This module computes them from a power model: the power of a package is a constant plus a part that
 * follows its busy CPUs. The registers are 32 bits wide and may fail. /proc/emulated_rapl shows the true
 * energy of every zone, with its time.
 *
 * A PMU named power counts the same energy by perf events, on one CPU of each package, like
 * arch/x86/events/rapl.c. It does not fail.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/intel_rapl.h>
#include <linux/kernel_stat.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/topology.h>

/* Powers in milliwatts. Multiplied by nanoseconds they are picojoules. */
static uint package_mw = 20000;
module_param(package_mw, uint, 0444);
MODULE_PARM_DESC(package_mw, "constant power of a package");
static uint cpu_mw = 30000;
module_param(cpu_mw, uint, 0444);
MODULE_PARM_DESC(cpu_mw, "power of a busy CPU, in its package and its core zone");
static uint dram_mw = 4000;
module_param(dram_mw, uint, 0444);
MODULE_PARM_DESC(dram_mw, "constant power of a package's memory");
static uint dram_cpu_mw = 3000;
module_param(dram_cpu_mw, uint, 0444);
MODULE_PARM_DESC(dram_cpu_mw, "power that a busy CPU adds to its package's memory");
static uint board_mw = 12000;
module_param(board_mw, uint, 0444);
MODULE_PARM_DESC(board_mw, "constant power of psys beyond packages and memory");

/* Millijoules from the start to the first wrap of a register. */
static uint package_room_mj = 1000000;
module_param(package_room_mj, uint, 0444);
static uint core_room_mj = 1000000;
module_param(core_room_mj, uint, 0444);
static uint dram_room_mj = 1000000;
module_param(dram_room_mj, uint, 0444);
static uint psys_room_mj = 1000000;
module_param(psys_room_mj, uint, 0444);

static ulong failing;
module_param(failing, ulong, 0644);
MODULE_PARM_DESC(failing, "bit n: reading the energy of package n and its zones fails");

/*
 * Units of the registers. The unit register holds exponents of 1/2: energy 2^-14 J, power 2^-3 W, time
 * 2^-10 s. On server CPUs the memory's unit is fixed
 * (drivers/powercap/intel_rapl_common.c, dram_domain_energy_unit).
 */
#define UNITS ((10ULL << 16) | (14ULL << 8) | 3ULL)
#define PJ_PER_J 1000000000000ULL
#define PJ_PER_DRAM_UNIT 15300000ULL

/* Register numbers: arbitrary, but not 0. Only this module uses them. */
enum { UNIT = 1, PACKAGE_ENERGY, CORE_ENERGY, DRAM_ENERGY, PSYS_ENERGY, LIMIT };

#define MAX_PACKAGES 8

static DEFINE_SPINLOCK(lock); /* guards everything below; perf reads in interrupts */
static bool powered;
static u64 then_ns;		       /* time of the last update of the sums */
static u64 powered_ns;		       /* time with power on */
static u64 busy_ns[MAX_PACKAGES];      /* CPU time with power on */
static u64 busy_then_ns[MAX_PACKAGES]; /* CPU time at then_ns, with power on or off */

static struct rapl_package *packages[MAX_PACKAGES];
static int package_count;

static void sum_busy(u64 *busy)
{
	int cpu;

	memset(busy, 0, MAX_PACKAGES * sizeof(*busy));
	for_each_online_cpu(cpu) {
		const u64 *t = kcpustat_cpu(cpu).cpustat;
		int package = topology_physical_package_id(cpu);

		if (package >= 0 && package < MAX_PACKAGES)
			busy[package] += t[CPUTIME_USER] + t[CPUTIME_NICE] + t[CPUTIME_SYSTEM] +
					 t[CPUTIME_IRQ] + t[CPUTIME_SOFTIRQ];
	}
}

static void advance(void)
{
	u64 busy[MAX_PACKAGES], now = ktime_get_ns();
	int i;

	sum_busy(busy);
	for (i = 0; i < MAX_PACKAGES; i++) {
		if (powered && busy[i] > busy_then_ns[i])
			busy_ns[i] += busy[i] - busy_then_ns[i];
		busy_then_ns[i] = max(busy_then_ns[i], busy[i]);
	}
	if (powered)
		powered_ns += now - then_ns;
	then_ns = now;
}

/* The true energy in picojoules. 64 bits hold 18 MJ. */
static u64 energy_pj(int reg, int package)
{
	u64 pj = 0;
	int i;

	switch (reg) {
	case PACKAGE_ENERGY:
		return powered_ns * package_mw + busy_ns[package] * cpu_mw;
	case CORE_ENERGY:
		return busy_ns[package] * cpu_mw;
	case DRAM_ENERGY:
		return powered_ns * dram_mw + busy_ns[package] * dram_cpu_mw;
	case PSYS_ENERGY:
		for (i = 0; i < package_count; i++)
			pj += energy_pj(PACKAGE_ENERGY, i) + energy_pj(DRAM_ENERGY, i);
		return pj + powered_ns * board_mw;
	}
	return 0;
}

static u64 to_units(int reg, u64 pj)
{
	if (reg == DRAM_ENERGY)
		return div64_u64(pj, PJ_PER_DRAM_UNIT);
	return mul_u64_u64_div_u64(pj, 1 << 14, PJ_PER_J);
}

/* The value of the register as if it were 64 bits wide. The register holds bits 0 to 31. */
static u64 wide_register(int reg, int package)
{
	u64 room_mj = 0;

	switch (reg) {
	case PACKAGE_ENERGY:
		room_mj = package_room_mj;
		break;
	case CORE_ENERGY:
		room_mj = core_room_mj;
		break;
	case DRAM_ENERGY:
		room_mj = dram_room_mj;
		break;
	case PSYS_ENERGY:
		room_mj = psys_room_mj;
		break;
	}
	return (1ULL << 32) - to_units(reg, room_mj * 1000000000ULL) + to_units(reg, energy_pj(reg, package));
}

static int read_register(int cpu, struct reg_action *ra)
{
	int package = topology_physical_package_id(cpu);
	unsigned long flags;
	u64 value = 0;

	switch (ra->reg) {
	case UNIT:
		value = UNITS;
		break;
	case PSYS_ENERGY:
		if (package != 0)
			return -ENXIO; /* there is one platform zone: the driver skips this one */
		fallthrough;
	case PACKAGE_ENERGY:
	case CORE_ENERGY:
	case DRAM_ENERGY:
		if (package < 0 || package >= MAX_PACKAGES || test_bit(package, &failing))
			return -EIO;
		spin_lock_irqsave(&lock, flags);
		advance();
		value = (u32)wide_register(ra->reg, package);
		spin_unlock_irqrestore(&lock, flags);
		break;
	}
	ra->value = value & ra->mask;
	return 0;
}

static int write_register(int cpu, struct reg_action *ra)
{
	return 0; /* power limits are not emulated */
}

static int set_powered(const char *value, const struct kernel_param *param)
{
	bool on;
	unsigned long flags;
	int err = kstrtobool(value, &on);

	if (err)
		return err;
	spin_lock_irqsave(&lock, flags);
	advance();
	powered = on;
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static const struct kernel_param_ops powered_ops = { .set = set_powered, .get = param_get_bool };
module_param_cb(powered, &powered_ops, &powered, 0644);
MODULE_PARM_DESC(powered, "off: nothing uses energy");

static void show_zone(struct seq_file *m, const char *name, int reg, int package)
{
	seq_printf(m, " %d/%s=%llu,%llu", package, name, energy_pj(reg, package) / 1000000,
		   wide_register(reg, package) >> 32);
}

/* One line: nanoseconds since the epoch, then package/zone=energy in microjoules,number of wraps. */
static int show_truth(struct seq_file *m, void *unused)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	advance();
	seq_printf(m, "%llu", ktime_get_real_ns());
	for (i = 0; i < package_count; i++) {
		show_zone(m, "package", PACKAGE_ENERGY, i);
		show_zone(m, "core", CORE_ENERGY, i);
		show_zone(m, "dram", DRAM_ENERGY, i);
	}
	show_zone(m, "psys", PSYS_ENERGY, 0);
	seq_putc(m, '\n');
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* The configs of the events (arch/x86/events/rapl.c). */
static const int event_registers[] = { [1] = CORE_ENERGY, [2] = PACKAGE_ENERGY, [3] = DRAM_ENERGY, [5] = PSYS_ENERGY };

static struct cpumask counting; /* one CPU of each package */
static enum cpuhp_state hotplug;

/* The count of the event, in 2^-32 J since the start. Only the first package has the sensor of psys. */
static u64 event_energy(struct perf_event *event)
{
	int package = topology_physical_package_id(event->cpu);
	int reg = event_registers[event->attr.config];
	unsigned long flags;
	u64 pj;

	if (reg == PSYS_ENERGY && package != 0)
		return 0;
	spin_lock_irqsave(&lock, flags);
	advance();
	pj = energy_pj(reg, package);
	spin_unlock_irqrestore(&lock, flags);
	return mul_u64_u64_div_u64(pj, 1ULL << 32, PJ_PER_J);
}

static void event_read(struct perf_event *event)
{
	u64 now = event_energy(event);

	local64_add(now - local64_xchg(&event->hw.prev_count, now), &event->count);
}

static void event_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, event_energy(event));
	event->hw.state = 0;
}

static void event_stop(struct perf_event *event, int flags)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		event_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int event_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		event_start(event, flags);
	return 0;
}

static void event_del(struct perf_event *event, int flags)
{
	event_stop(event, flags);
}

static int event_init(struct perf_event *event)
{
	int package;

	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (event->attr.sample_period || event->cpu < 0)
		return -EINVAL;
	if (event->attr.config >= ARRAY_SIZE(event_registers) || !event_registers[event->attr.config])
		return -EINVAL;
	package = topology_physical_package_id(event->cpu);
	if (package < 0 || package >= MAX_PACKAGES)
		return -EINVAL;
	return 0;
}

#define ENERGY_EVENT(_event, _var, _config)                                                        \
	PMU_EVENT_ATTR_STRING(_event, _var, "event=" _config);                                     \
	PMU_EVENT_ATTR_STRING(_event.unit, _var##_unit, "Joules");                                 \
	PMU_EVENT_ATTR_STRING(_event.scale, _var##_scale, "2.3283064365386962890625e-10")
#define ENERGY_ATTRS(_var) &_var.attr.attr, &_var##_unit.attr.attr, &_var##_scale.attr.attr

ENERGY_EVENT(energy-cores, energy_cores, "0x01");
ENERGY_EVENT(energy-pkg, energy_pkg, "0x02");
ENERGY_EVENT(energy-ram, energy_ram, "0x03");
ENERGY_EVENT(energy-psys, energy_psys, "0x05");

static struct attribute *event_attrs[] = {
	ENERGY_ATTRS(energy_cores), ENERGY_ATTRS(energy_pkg), ENERGY_ATTRS(energy_ram), ENERGY_ATTRS(energy_psys), NULL,
};

static const struct attribute_group event_group = { .name = "events", .attrs = event_attrs };

PMU_FORMAT_ATTR(event, "config:0-7");

static struct attribute *format_attrs[] = { &format_attr_event.attr, NULL };

static const struct attribute_group format_group = { .name = "format", .attrs = format_attrs };

static ssize_t cpumask_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return cpumap_print_to_pagebuf(true, buf, &counting);
}
static DEVICE_ATTR_RO(cpumask);

static struct attribute *cpumask_attrs[] = { &dev_attr_cpumask.attr, NULL };

static const struct attribute_group cpumask_group = { .attrs = cpumask_attrs };

static const struct attribute_group *pmu_groups[] = { &event_group, &format_group, &cpumask_group, NULL };

static struct pmu power_pmu = {
	.module = THIS_MODULE,
	.attr_groups = pmu_groups,
	.task_ctx_nr = perf_invalid_context,
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE,
	.event_init = event_init,
	.add = event_add,
	.del = event_del,
	.start = event_start,
	.stop = event_stop,
	.read = event_read,
};

static int cpu_online_again(unsigned int cpu)
{
	struct cpumask both;

	if (!cpumask_and(&both, &counting, topology_core_cpumask(cpu)))
		cpumask_set_cpu(cpu, &counting);
	return 0;
}

/* Moves the counters of a CPU to another CPU of the package, if there is one. */
static int cpu_offline_soon(unsigned int cpu)
{
	int other = cpumask_any_but(topology_core_cpumask(cpu), cpu);

	if (!cpumask_test_and_clear_cpu(cpu, &counting) || other >= nr_cpu_ids)
		return 0;
	cpumask_set_cpu(other, &counting);
	perf_pmu_migrate_context(&power_pmu, cpu, other);
	return 0;
}

static int register_pmu(void)
{
	int err = perf_pmu_register(&power_pmu, "power", -1);

	if (err)
		return err;
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "emulated_rapl", cpu_online_again, cpu_offline_soon);
	if (err < 0) {
		perf_pmu_unregister(&power_pmu);
		return err;
	}
	hotplug = err;
	return 0;
}

static void unregister_pmu(void)
{
	cpuhp_remove_state_nocalls(hotplug);
	perf_pmu_unregister(&power_pmu);
}

static struct rapl_if_priv interface = {
	.reg_unit = UNIT,
	.regs = {
		[RAPL_DOMAIN_PACKAGE] = { [RAPL_DOMAIN_REG_LIMIT] = LIMIT, [RAPL_DOMAIN_REG_STATUS] = PACKAGE_ENERGY },
		[RAPL_DOMAIN_PP0] = { [RAPL_DOMAIN_REG_LIMIT] = LIMIT, [RAPL_DOMAIN_REG_STATUS] = CORE_ENERGY },
		[RAPL_DOMAIN_DRAM] = { [RAPL_DOMAIN_REG_LIMIT] = LIMIT, [RAPL_DOMAIN_REG_STATUS] = DRAM_ENERGY },
		[RAPL_DOMAIN_PLATFORM] = { [RAPL_DOMAIN_REG_LIMIT] = LIMIT, [RAPL_DOMAIN_REG_STATUS] = PSYS_ENERGY },
	},
	.limits = { [RAPL_DOMAIN_PACKAGE] = 2 },
	.read_raw = read_register,
	.write_raw = write_register,
};

static void remove_packages(void)
{
	cpus_read_lock();
	while (package_count > 0)
		rapl_remove_package(packages[--package_count]);
	cpus_read_unlock();
}

static int add_packages(void)
{
	int cpu, err = 0;

	cpus_read_lock();
	for_each_online_cpu(cpu) {
		struct rapl_package *p = rapl_find_package_domain(cpu, &interface);

		if (!p) {
			if (package_count == MAX_PACKAGES)
				break;
			p = rapl_add_package(cpu, &interface);
			if (IS_ERR(p)) {
				err = PTR_ERR(p);
				break;
			}
			packages[package_count++] = p;
		}
		cpumask_set_cpu(cpu, &p->cpumask);
	}
	cpus_read_unlock();
	return err;
}

static int __init emulated_rapl_init(void)
{
	int err;

	then_ns = ktime_get_ns();
	sum_busy(busy_then_ns);
	interface.control_type = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(interface.control_type))
		return PTR_ERR(interface.control_type);
	err = add_packages();
	if (!err)
		err = register_pmu();
	if (!err && !proc_create_single("emulated_rapl", 0444, NULL, show_truth)) {
		unregister_pmu();
		err = -ENOMEM;
	}
	if (err) {
		remove_packages();
		powercap_unregister_control_type(interface.control_type);
	}
	return err;
}

static void __exit emulated_rapl_exit(void)
{
	remove_proc_entry("emulated_rapl", NULL);
	unregister_pmu();
	remove_packages();
	powercap_unregister_control_type(interface.control_type);
}

module_init(emulated_rapl_init);
module_exit(emulated_rapl_exit);
MODULE_DESCRIPTION("Emulated registers for the RAPL driver, with their true energy");
MODULE_LICENSE("Dual BSD/GPL");
