// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A GPU for the kernel's own DRM and hwmon cores, on a machine without a GPU: a PCI device of QEMU (edu).
 * A client sets the busy time of its engines by an ioctl, and the power follows.
 *
 * It imitates i915: its PCI driver, its DRM driver and its hwmon chip have that name, the chip has the
 * energy of the card (energy1_input), and fdinfo has the times of engine classes
 * (Documentation/gpu/drm-usage-stats.rst). It imitates no other part of i915. /proc/emulated_gpu shows the
 * true energy and the true time of each client, including closed clients.
 */
#include <linux/hwmon.h>
#include <linux/list.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/version.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_print.h>

/* From 6.5 on, the core prints fdinfo, with its own client IDs. In earlier kernels each driver prints it. */
#define CORE_PRINTS (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0))

/* Powers in milliwatts. Multiplied by nanoseconds they are picojoules. */
static uint engine_mw[] = { 100000, 20000 };
module_param_array(engine_mw, uint, NULL, 0444);
MODULE_PARM_DESC(engine_mw, "power of a busy engine: render, copy");

enum { ENGINES = 2, PERMILLE = 1000 };
static const char *const engine_names[ENGINES] = { "render", "copy" };

struct client {
	struct list_head list;
	u64 id;
	pid_t opener;
	bool closed;
	u32 rate[ENGINES];	/* part of the engine's time that works for the client, in 1/1000 */
	u64 worked[ENGINES];	/* 1/1000 ns */
};

static DEFINE_SPINLOCK(lock); /* guards everything below */
static LIST_HEAD(clients);
#if !CORE_PRINTS
static u64 last_id;
#endif
static uint idle_mw; /* power of the card at rest */
static u64 then_ns;  /* time of the last update of the sums */
static u64 rest_pj;  /* energy at rest */

/* The argument of the ioctl: the part of each engine's time that works for the client from now on. */
struct work {
	__u32 rate[ENGINES];
};
#define IOCTL_WORK DRM_IOW(DRM_COMMAND_BASE, struct work)

static void advance(void)
{
	u64 now = ktime_get_ns(), elapsed = now - then_ns;
	struct client *c;
	int i;

	list_for_each_entry(c, &clients, list)
		for (i = 0; i < ENGINES; i++)
			c->worked[i] += elapsed * c->rate[i];
	rest_pj += elapsed * idle_mw;
	then_ns = now;
}

static u64 worked_ns(const struct client *c, int engine)
{
	return div_u64(c->worked[engine], PERMILLE);
}

static u64 energy_uj(void)
{
	u64 pj = rest_pj;
	struct client *c;
	int i;

	list_for_each_entry(c, &clients, list)
		for (i = 0; i < ENGINES; i++)
			pj += worked_ns(c, i) * engine_mw[i];
	return div_u64(pj, 1000000);
}

static int set_idle_mw(const char *value, const struct kernel_param *param)
{
	unsigned long flags;
	uint mw;
	int err = kstrtouint(value, 0, &mw);

	if (err)
		return err;
	spin_lock_irqsave(&lock, flags);
	advance();
	idle_mw = mw;
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static const struct kernel_param_ops idle_mw_ops = { .set = set_idle_mw, .get = param_get_uint };
module_param_cb(idle_mw, &idle_mw_ops, &idle_mw, 0644);
MODULE_PARM_DESC(idle_mw, "power of the card at rest");

static int gpu_open(struct drm_device *dev, struct drm_file *file)
{
	struct client *c = kzalloc(sizeof(*c), GFP_KERNEL);
	unsigned long flags;

	if (!c)
		return -ENOMEM;
	c->opener = task_tgid_nr(current);
	spin_lock_irqsave(&lock, flags);
#if CORE_PRINTS
	c->id = file->client_id;
#else
	c->id = ++last_id;
#endif
	list_add_tail(&c->list, &clients);
	spin_unlock_irqrestore(&lock, flags);
	file->driver_priv = c;
	return 0;
}

static void gpu_postclose(struct drm_device *dev, struct drm_file *file)
{
	struct client *c = file->driver_priv;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	advance();
	memset(c->rate, 0, sizeof(c->rate));
	c->closed = true;
	spin_unlock_irqrestore(&lock, flags);
}

static int gpu_work(struct drm_device *dev, void *data, struct drm_file *file)
{
	const struct work *w = data;
	struct client *c = file->driver_priv;
	unsigned long flags;
	int i;

	for (i = 0; i < ENGINES; i++)
		if (w->rate[i] > PERMILLE)
			return -EINVAL;
	spin_lock_irqsave(&lock, flags);
	advance();
	memcpy(c->rate, w->rate, sizeof(c->rate));
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static void read_worked(const struct client *c, u64 *worked)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	advance();
	for (i = 0; i < ENGINES; i++)
		worked[i] = worked_ns(c, i);
	spin_unlock_irqrestore(&lock, flags);
}

#if CORE_PRINTS
static void gpu_show_fdinfo(struct drm_printer *p, struct drm_file *file)
{
	u64 worked[ENGINES];
	int i;

	read_worked(file->driver_priv, worked);
	for (i = 0; i < ENGINES; i++)
		drm_printf(p, "drm-engine-%s:\t%llu ns\n", engine_names[i], worked[i]);
}
#else
static void gpu_show_fdinfo(struct seq_file *m, struct file *f)
{
	struct drm_file *file = f->private_data;
	const struct client *c = file->driver_priv;
	struct drm_device *dev = file->minor->dev;
	u64 worked[ENGINES];
	int i;

	read_worked(c, worked);
	seq_printf(m, "drm-driver:\t%s\n", dev->driver->name);
	seq_printf(m, "drm-client-id:\t%llu\n", c->id);
	seq_printf(m, "drm-pdev:\t%s\n", pci_name(to_pci_dev(dev->dev)));
	for (i = 0; i < ENGINES; i++)
		seq_printf(m, "drm-engine-%s:\t%llu ns\n", engine_names[i], worked[i]);
}
#endif

static const struct drm_ioctl_desc gpu_ioctls[] = {
	{ .cmd = IOCTL_WORK, .func = gpu_work, .flags = DRM_RENDER_ALLOW, .name = "work" },
};

static const struct file_operations gpu_fops = {
	.owner = THIS_MODULE,
	.open = drm_open,
	.release = drm_release,
	.unlocked_ioctl = drm_ioctl,
	.compat_ioctl = drm_compat_ioctl,
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
#if CORE_PRINTS
	.show_fdinfo = drm_show_fdinfo,
#else
	.show_fdinfo = gpu_show_fdinfo,
#endif
#ifdef FOP_UNSIGNED_OFFSET
	.fop_flags = FOP_UNSIGNED_OFFSET,
#endif
};

static const struct drm_driver gpu_driver = {
	.driver_features = DRIVER_RENDER,
	.open = gpu_open,
	.postclose = gpu_postclose,
	.ioctls = gpu_ioctls,
	.num_ioctls = ARRAY_SIZE(gpu_ioctls),
	.fops = &gpu_fops,
#if CORE_PRINTS
	.show_fdinfo = gpu_show_fdinfo,
#endif
	.name = "i915",
	.desc = "Emulated GPU",
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
	.date = "20260101",
#endif
	.major = 1,
};

static umode_t gpu_hwmon_visible(const void *data, enum hwmon_sensor_types type, u32 attr, int channel)
{
	return 0444;
}

static int gpu_hwmon_read(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel, long *value)
{
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	advance();
	*value = energy_uj();
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static const struct hwmon_ops gpu_hwmon_ops = { .is_visible = gpu_hwmon_visible, .read = gpu_hwmon_read };

static const struct hwmon_channel_info *gpu_hwmon_info[] = { HWMON_CHANNEL_INFO(energy, HWMON_E_INPUT), NULL };

static const struct hwmon_chip_info gpu_hwmon_chip = { .ops = &gpu_hwmon_ops, .info = gpu_hwmon_info };

static int gpu_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct device *hwmon;
	struct drm_device *dev = drm_dev_alloc(&gpu_driver, &pci->dev);
	int err;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	pci_set_drvdata(pci, dev);
	hwmon = devm_hwmon_device_register_with_info(&pci->dev, "i915", NULL, &gpu_hwmon_chip, NULL);
	err = PTR_ERR_OR_ZERO(hwmon);
	if (!err)
		err = drm_dev_register(dev, 0);
	if (err)
		drm_dev_put(dev);
	return err;
}

static void gpu_remove(struct pci_dev *pci)
{
	struct drm_device *dev = pci_get_drvdata(pci);

	drm_dev_unplug(dev);
	drm_dev_put(dev);
}

static const struct pci_device_id gpu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) }, /* QEMU's edu */
	{}
};

static struct pci_driver gpu_pci_driver = { .name = "i915", .id_table = gpu_ids, .probe = gpu_probe, .remove = gpu_remove };

/*
 * A line of the card: energy in microjoules. Then a line for each client: its ID, who opened it, whether it is closed, and
 * nanoseconds of each engine.
 */
static int show_truth(struct seq_file *m, void *unused)
{
	const struct client *c;
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	advance();
	seq_printf(m, "energy %llu\n", energy_uj());
	list_for_each_entry(c, &clients, list) {
		seq_printf(m, "client %llu %d %d", c->id, c->opener, c->closed);
		for (i = 0; i < ENGINES; i++)
			seq_printf(m, " %llu", worked_ns(c, i));
		seq_putc(m, '\n');
	}
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static int __init emulated_gpu_init(void)
{
	int err;

	then_ns = ktime_get_ns();
	if (!proc_create_single("emulated_gpu", 0444, NULL, show_truth))
		return -ENOMEM;
	err = pci_register_driver(&gpu_pci_driver);
	if (err)
		remove_proc_entry("emulated_gpu", NULL);
	return err;
}

static void __exit emulated_gpu_exit(void)
{
	struct client *c, *next;

	pci_unregister_driver(&gpu_pci_driver);
	remove_proc_entry("emulated_gpu", NULL);
	list_for_each_entry_safe(c, next, &clients, list)
		kfree(c);
}

module_init(emulated_gpu_init);
module_exit(emulated_gpu_exit);
MODULE_DESCRIPTION("Emulated GPU for the DRM and hwmon cores, with its true energy and the true times of its clients");
MODULE_LICENSE("Dual BSD/GPL");
