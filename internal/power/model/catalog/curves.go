// SPDX-License-Identifier: Apache-2.0

package catalog

// measured lists the machines whose power was measured.
//
// The servers with two Xeon Platinum are bare-metal machines of Amazon under CPU stress. Each figure
// is the mean of several runs, and its last digit is noise. The source is Teads, turbostress reports
// of 2021 (CC0-1.0). The reports do not state the memory. It is taken from the list of EC2 instance
// types with this CPU: c5n.metal 192 GiB, z1d.metal 384, m5.metal 384, c5.metal 192. The memory of
// the 8259CL draws twice the power of the memory of the 8175M at every load, so the machine is
// assumed to be r5.metal with 768 GiB.
//
// The other machines have a single run with 30 s per point, and the power is RAPL energy over time.
// The source is CodeCarbon, codecarbon/data/hardware/cpu_load_profiling, 14 January 2025 (MIT,
// LICENSES/CodeCarbon-MIT.txt). The E5-2620 v3 has 24 threads in these runs, so the machine has two
// chips.
var measured = []measuredMachine{
	{
		cpu: "Intel Xeon Platinum 8124M", family: "intel-skylake", tdp: 240, chips: 2, threads: 72, memory: 192,
		points: []measurement{
			{0, 50.7, 37.3}, {10, 134.8, 67.5}, {20, 174, 68.9}, {30, 212.1, 69.4}, {40, 249.5, 70.4},
			{50, 293.2, 74.9}, {60, 329.9, 78.3}, {70, 357.3, 80.2}, {80, 382, 81.7}, {90, 403.9, 83.2},
			{100, 412.7, 84.5},
		},
	},
	{
		cpu: "Intel Xeon Platinum 8151", family: "intel-skylake", tdp: 240, chips: 2, threads: 48, memory: 384,
		points: []measurement{
			{0, 47.6, 49.5}, {10, 147.9, 92}, {20, 198, 97.1}, {30, 244.7, 97.7}, {40, 304.6, 100.8},
			{50, 360.6, 104.2}, {60, 388.9, 104.8}, {70, 413.1, 106.5}, {80, 446.6, 108}, {90, 470.5, 109.1},
			{100, 480.2, 110.5},
		},
	},
	{
		cpu: "Intel Xeon Platinum 8175M", family: "intel-skylake", tdp: 240, chips: 2, threads: 96, memory: 384,
		points: []measurement{
			{0, 57.9, 57.8}, {10, 146.6, 92.4}, {20, 193.4, 95.4}, {30, 245.5, 98.8}, {40, 298.2, 103.8},
			{50, 343.7, 111.5}, {60, 380.5, 116.2}, {70, 416.9, 120.1}, {80, 453.3, 125.5},
			{90, 480.8, 129.1}, {100, 491.8, 132},
		},
	},
	{
		cpu: "Intel Xeon Platinum 8259CL", family: "intel-cascadelake", tdp: 210, chips: 2, threads: 96, memory: 768,
		points: []measurement{
			{0, 54.7, 119.4}, {10, 137.9, 197.7}, {20, 178.3, 211.1}, {30, 223.9, 217.2}, {40, 272.1, 227.9},
			{50, 306.9, 235.1}, {60, 343.8, 248.1}, {70, 375.2, 258.1}, {80, 400.7, 264.8},
			{90, 425.6, 271.8}, {100, 440.1, 276.9},
		},
	},
	{
		cpu: "Intel Xeon Platinum 8275CL", family: "intel-cascadelake", tdp: 240, chips: 2, threads: 96, memory: 192,
		points: []measurement{
			{0, 58.7, 41.7}, {10, 174.9, 70.2}, {20, 241.7, 73.3}, {30, 299.4, 72.4}, {40, 373.8, 75},
			{50, 444.6, 79}, {60, 521.3, 84}, {70, 563.2, 85.8}, {80, 590.9, 88.1}, {90, 606.4, 90.2},
			{100, 617.4, 91.9},
		},
	},
	{
		cpu: "Intel Xeon E5-2620 v3", family: "intel-haswell", tdp: 85, chips: 2, threads: 24,
		points: []measurement{
			{0, 15.91, 0}, {10, 30.74, 0}, {20, 38.2, 0}, {30, 44.72, 0}, {40.5, 62.18, 0}, {50.2, 61.49, 0},
			{60, 75.76, 0}, {69.9, 111.75, 0}, {80.8, 115.75, 0}, {89.7, 117.42, 0}, {99.6, 104.97, 0},
		},
	},
	{
		cpu: "AMD Ryzen Threadripper 1950X", family: "amd-threadripper", tdp: 180, chips: 1, threads: 32,
		points: []measurement{
			{2.8, 42.66, 0}, {13.9, 62.02, 0}, {23.2, 78.33, 0}, {36.4, 105.61, 0}, {44.8, 127.58, 0},
			{53.1, 143.25, 0}, {66, 172.51, 0}, {72.1, 170.36, 0}, {83.1, 169.24, 0}, {91.7, 166.89, 0},
			{99.7, 167.09, 0},
		},
	},
	{
		cpu: "Intel Xeon E3-1240 v2", family: "intel-ivybridge", tdp: 69, chips: 1, threads: 8,
		points: []measurement{
			{2.5, 5.46, 0}, {12.5, 6.83, 0}, {21.8, 8.11, 0}, {32.5, 9.44, 0}, {41.2, 14.07, 0},
			{51.3, 23.95, 0}, {60.8, 29.5, 0}, {71.3, 44.5, 0}, {80.2, 47.16, 0}, {88.9, 48.37, 0},
			{100, 49.41, 0},
		},
	},
	{
		cpu: "AMD EPYC 8024P", family: "amd-epyc-gen4", tdp: 90, chips: 1, threads: 16,
		points: []measurement{
			{0.6, 18.26, 0}, {10, 29.2, 0}, {20, 38.56, 0}, {30, 41.71, 0}, {40.3, 43.07, 0}, {50, 47.57, 0},
			{64.6, 48.7, 0}, {70.2, 49.24, 0}, {80, 50.87, 0}, {89.4, 46.07, 0}, {100, 46.25, 0},
		},
	},
}
