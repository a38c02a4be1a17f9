// SPDX-License-Identifier: Apache-2.0

package workload

import "strings"

// findSlurmStep finds jobs of Slurm and their steps, in the directories that slurmstepd creates:
//
//	…/slurmstepd.scope/job_7/step_0/user/task_0     cgroup v2, or <node>_slurmstepd.scope (Slurm's cgroup_v2.html)
//	/slurm/uid_1000/job_7/step_0/task_0             version 1, or slurm_<node> (Slurm's cgroups.html)
//
// All processes of a job are in these directories, including processes of sessions that
// pam_slurm_adopt adopted. The outermost job is selected, so that a process cannot leave a job by
// creating cgroups in it.
func findSlurmStep(w *walk, name string) verdict {
	switch {
	case w.line.Job.ID != "":
		if step, ok := strings.CutPrefix(name, "step_"); ok && w.at == w.slurm.job+1 && isSlurmStep(step) {
			w.line.Job.Step = step
			w.line.jobCgroup = w.path[:w.end]
		}
	case isSlurmRoot(name):
		w.slurm = slurmWalk{owner: w.owner, root: w.at}
	case w.isSlurmJob(name):
		w.line.Job.ID = w.slurm.owner.qualify(name[len("job_"):])
		w.slurm.job = w.at
		w.line.jobCgroup = w.path[:w.end]
	}
	return passed
}

// slurmWalk is the state of a walk within Slurm's directories.
type slurmWalk struct {
	owner     cgroupOwner // owner of the root
	root, job int         // indices of the directories
}

// isSlurmRoot reports whether Slurm's jobs may be in a directory.
func isSlurmRoot(name string) bool {
	return isSlurmScope(name) || name == "slurm" || strings.HasPrefix(name, "slurm_")
}

func isSlurmScope(name string) bool {
	return name == "slurmstepd.scope" || strings.HasSuffix(name, "_slurmstepd.scope")
}

// isSlurmJob reports whether the current directory belongs to a job, by its name and the names of its
// parents. A directory below a user's manager or another unit is never a job: any user could have
// created it. Nor is a directory directly in a container that has the name of a Slurm directory.
func (w *walk) isSlurmJob(name string) bool {
	id, ok := strings.CutPrefix(name, "job_")
	if !ok || !isDigits(id) || w.slurm.root == 0 {
		return false
	}
	root := w.parts[w.slurm.root]
	if w.slurm.owner.untrusted || w.owner != w.slurm.owner.below(root) {
		return false
	}
	if isSlurmScope(root) {
		return w.slurm.root == w.at-1
	}
	uid, ok := strings.CutPrefix(w.parts[w.at-1], "uid_")
	return ok && isDigits(uid) && w.slurm.root == w.at-2
}

// isSlurmStep reports whether a step has this name: a number, two for a component of a
// heterogeneous step, or one of Slurm's own steps.
func isSlurmStep(s string) bool {
	switch s {
	case "batch", "extern", "interactive":
		return true
	}
	step, component, ok := strings.Cut(s, "+")
	return isDigits(step) && (!ok || isDigits(component))
}
