package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A cgroup is a control group (version 2) that has the command and its descendants. SIGKILL reaches
// all of them at one moment, also those that run as another user. It is empty where there is none.
type cgroup string

// newCgroup makes a control group below the one of this process if that is ours. It's an addition
// to signals, so any failure means that there is none.
func newCgroup() cgroup {
	above := ownCgroup()
	if above == "" || !isDelegated(above) || strings.HasPrefix(filepath.Base(above), "zkr-") { // an outer zkr's
		return ""
	}

	// A zkr that was killed can have left an empty group. A group with processes can't be removed.
	left, _ := filepath.Glob(above + "/zkr-*") // the pattern is valid
	for _, dir := range left {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), "zkr-%d-", &pid); err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			cgroup(dir).remove()
		}
	}

	dir, err := os.MkdirTemp(above, fmt.Sprintf("zkr-%d-", os.Getpid()))
	if err != nil {
		return ""
	}

	return cgroup(dir)
}

// ownCgroup returns the directory of this process's group, or nothing.
func ownCgroup() string {
	groups, _ := os.ReadFile("/proc/self/cgroup") // without it, there is no group
	for line := range strings.Lines(string(groups)) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")

		// The second directory is for systems that have version 1, too.
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			dir := filepath.Join(mount, own)
			if _, err := os.Stat(cgroup(dir).file("procs")); ok && err == nil {
				return dir
			}
		}
	}
	return ""
}

// isDelegated reports whether groups may be made in this one. Under systemd they belong to systemd,
// except those that it has delegated (which it marks).
func isDelegated(dir string) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return true
	}

	_, err := unix.Getxattr(dir, "user.delegate", make([]byte, 1))
	return err == nil
}

// start makes start put its process into the group. If the kernel refuses that, the process starts
// without.
func (c cgroup) start(attr *syscall.SysProcAttr, start func() error) error {
	if dir, err := os.Open(string(c)); err == nil {
		defer dir.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
		if start() == nil {
			return nil
		}
		attr.UseCgroupFD = false
	}
	return start()
}

// kill sends SIGKILL to all processes of the group.
func (c cgroup) kill() {
	if file, err := os.OpenFile(c.file("kill"), os.O_WRONLY, 0); err == nil { // not before Linux 5.14
		_, _ = file.WriteString("1") // signals end the processes if this does not
		file.Close()
	}
}

// remove removes the group if it is empty. Otherwise it stays (a job can have made groups inside
// it), which holds up nothing.
func (c cgroup) remove() { _ = syscall.Rmdir(string(c)) }

func (c cgroup) file(name string) string { return string(c) + "/cgroup." + name }
