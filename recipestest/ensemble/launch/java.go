package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// localJava runs servers as processes of this machine.
type localJava struct {
	install string // the path of zkServer.sh or of Debian's jar
}

// newLocalJava looks for an install in the same order as supervisor.sh.
func newLocalJava() (*localJava, error) {
	if _, err := exec.LookPath("sh"); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("java"); err != nil {
		return nil, err
	}

	if home := os.Getenv("ZOOKEEPER_HOME"); home != "" {
		if script, err := exec.LookPath(filepath.Join(home, "bin", "zkServer.sh")); err == nil {
			return &localJava{install: script}, nil
		}
	}

	if script, err := exec.LookPath("zkServer.sh"); err == nil {
		return &localJava{install: script}, nil
	}

	const debian = "/usr/share/java/zookeeper.jar"
	if _, err := os.Stat(debian); err == nil {
		return &localJava{install: debian}, nil
	}
	return nil, errors.New("no zkServer.sh in ZOOKEEPER_HOME/bin or on PATH, and no " + debian)
}

func (j *localJava) String() string   { return fmt.Sprintf("a local process of %s", j.install) }
func (j *localJava) Bind() string     { return "127.0.0.1" }
func (j *localJava) Loopback() string { return "127.0.0.1" }

func (j *localJava) launch(spec Spec) (_ *Supervisor, err error) {
	// A file takes the log, so that no goroutine has to read it. It is unlinked at once, so that it
	// is deleted when it is closed.
	log, err := os.CreateTemp("", "zkrecipes-*.log")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, log.Close())
		}
	}()
	if err := os.Remove(log.Name()); err != nil {
		return nil, err
	}

	command := append([]string{"sh"}, spec.shellArgs()...)
	if spec.DiskSize > 0 && os.Geteuid() == 0 {
		// Give it a file system that no other process sees and that ends with it.
		mount := fmt.Sprintf(`mount -t tmpfs -o size=%d tmpfs /dev/shm && exec "$@"`, spec.DiskSize)
		command = append([]string{"unshare", "--mount", "sh", "-c", mount, "sh"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = log
	commands, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	return &Supervisor{
		commands: commands,
		answers:  bufio.NewReader(answers),
		deadline: answers.(*os.File).SetReadDeadline,
		log:      func(w io.Writer, whole bool) error { return copyLog(w, log, whole) },
		end: func() error {
			return errors.Join(commands.Close(), cmd.Wait(), log.Close())
		},
	}, nil
}

// copyLog writes the whole of f to w, or its last few kilobytes.
func copyLog(w io.Writer, f *os.File, whole bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}

	size := info.Size()
	most := min(size, 8<<10)
	if whole {
		most = size
	}
	_, err = io.Copy(w, io.NewSectionReader(f, size-most, most))
	return err
}
