package launch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// officialImage is the image that runs unless ZKRECIPES_IMAGE names another.
const officialImage = "zookeeper:3.8.4"

// A dockerEngine runs servers in containers.
type dockerEngine struct {
	client *docker.Client
	socket string // the engine's
	image  string
}

// newDocker finds the Docker engine of this machine. It pulls the image if it is missing.
func newDocker() (*dockerEngine, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}

	// A dead engine must not hold up the search for a local install.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, err
	}

	endpoint, err := url.Parse(pool.Client.Endpoint())
	if err != nil {
		return nil, err
	}
	// Members reach each other through links on this machine's loopback interface.
	if endpoint.Scheme != "unix" {
		return nil, fmt.Errorf("%s is not the engine of this machine", endpoint)
	}

	d := &dockerEngine{
		client: pool.Client,
		socket: endpoint.Path,
		image:  cmp.Or(os.Getenv("ZKRECIPES_IMAGE"), officialImage),
	}
	return d, d.pull()
}

// pull pulls the image unless the engine has it.
func (d *dockerEngine) pull() error {
	_, err := d.client.InspectImage(d.image)
	if !errors.Is(err, docker.ErrNoSuchImage) {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	name, tag := docker.ParseRepositoryTag(d.image)
	err = d.client.PullImage(docker.PullImageOptions{Repository: name, Tag: tag, Context: ctx}, docker.AuthConfiguration{})
	if err != nil {
		return fmt.Errorf("image %s: %w", d.image, err)
	}

	return nil
}

func (d *dockerEngine) String() string {
	return fmt.Sprintf("a container of image %s", d.image)
}

// hostNetwork reports whether containers share this machine's network. They don't if the engine
// runs in a virtual machine. Then ports are published.
func (d *dockerEngine) hostNetwork() bool { return runtime.GOOS == "linux" }

func (d *dockerEngine) Bind() string {
	if d.hostNetwork() {
		return "127.0.0.1"
	}
	return "0.0.0.0" // within the container
}

func (d *dockerEngine) Loopback() string {
	if d.hostNetwork() {
		return "127.0.0.1"
	}
	return "host.docker.internal"
}

func (d *dockerEngine) launch(spec Spec) (_ *Supervisor, err error) {
	container, err := d.client.CreateContainer(d.container(spec))
	if err != nil {
		return nil, err
	}
	remove := func() error { return d.remove(container.ID) }
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()

	// Attach before the start: if this process is killed, the container's input closes and it ends.
	conn, stream, err := d.attach(container.ID)
	if err != nil {
		return nil, err
	}
	if err := d.client.StartContainer(container.ID, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	return &Supervisor{
		commands: conn,
		answers:  bufio.NewReader(&frameReader{stream: stream}),
		deadline: conn.SetReadDeadline,
		log:      func(w io.Writer, whole bool) error { return d.log(container.ID, w, whole) },
		end:      func() error { return errors.Join(conn.Close(), remove()) },
	}, nil
}

// container describes the container of a server. The container lives as long as its standard input
// is open, and is removed when it has ended.
func (d *dockerEngine) container(spec Spec) docker.CreateContainerOptions {
	config := &docker.Config{
		Image:        d.image,
		Entrypoint:   []string{"sh"},
		Cmd:          spec.shellArgs(),
		User:         "root",
		Labels:       map[string]string{"zkrecipes": "ensemble"},
		OpenStdin:    true,
		StdinOnce:    true,
		AttachStdin:  true,
		AttachStdout: true,
	}

	host := &docker.HostConfig{
		AutoRemove: true,
		ShmSize:    cmp.Or(spec.DiskSize, 1<<30), // only a limit: the server's data is in /dev/shm
	}
	if spec.Traced {
		host.CapAdd = []string{"SYS_PTRACE"}
	}

	if d.hostNetwork() {
		host.NetworkMode = "host"
	} else {
		// The engine runs in a virtual machine, so publish the ports.
		config.ExposedPorts = make(map[docker.Port]struct{})
		host.PortBindings = make(map[docker.Port][]docker.PortBinding)
		for _, port := range spec.Ports {
			p := docker.Port(fmt.Sprintf("%d/tcp", port))
			config.ExposedPorts[p] = struct{}{}
			host.PortBindings[p] = []docker.PortBinding{{HostIP: "127.0.0.1", HostPort: fmt.Sprint(port)}}
		}
	}

	return docker.CreateContainerOptions{Config: config, HostConfig: host}
}

// attach connects to a container's standard input and output. (The client library's attach would
// keep three goroutines for the life of the container.)
func (d *dockerEngine) attach(id string) (_ net.Conn, _ io.Reader, err error) {
	conn, err := net.Dial("unix", d.socket)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()

	req, err := http.NewRequest(http.MethodPost, "http://docker/containers/"+id+"/attach?stream=1&stdin=1&stdout=1", nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	if err := req.Write(conn); err != nil {
		return nil, nil, err
	}

	stream := bufio.NewReader(conn)
	resp, err := http.ReadResponse(stream, req)
	if err != nil {
		return nil, nil, err
	}
	// If the engine ignores the upgrade it answers 200, and the stream is the same.
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("attach: %s", resp.Status)
	}

	return conn, stream, nil
}

func (d *dockerEngine) log(id string, w io.Writer, whole bool) error {
	lines, limit := "40", 5*time.Second
	if whole {
		lines, limit = "all", time.Minute
	}

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return d.client.Logs(docker.LogsOptions{
		Context: ctx, Container: id, Stderr: true, ErrorStream: w, OutputStream: io.Discard, Tail: lines,
	})
}

// remove kills a container and waits until it is gone. If the engine is already removing the
// container (because its standard input has closed), that's no error.
func (d *dockerEngine) remove(id string) error {
	err := d.client.RemoveContainer(docker.RemoveContainerOptions{ID: id, Force: true, RemoveVolumes: true})
	var gone *docker.NoSuchContainer
	var refused *docker.Error
	if errors.As(err, &gone) || errors.As(err, &refused) && refused.Status == http.StatusConflict {
		return nil
	}
	return err
}

// A frameReader reads the output of a container, which the engine wraps in frames. A frame has a
// header of eight bytes, the last four of which are the length of its payload.
type frameReader struct {
	stream io.Reader
	frame  io.LimitedReader
}

func (r *frameReader) Read(p []byte) (int, error) {
	// A frame can be empty.
	for r.frame.N == 0 {
		var header [8]byte
		if _, err := io.ReadFull(r.stream, header[:]); err != nil {
			return 0, err
		}
		r.frame = io.LimitedReader{R: r.stream, N: int64(binary.BigEndian.Uint32(header[4:]))}
	}
	return r.frame.Read(p)
}
