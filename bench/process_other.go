//go:build !linux

package main

import (
	"os/exec"
	"time"
)

func detach(*exec.Cmd) {}

func cpuTime(int) time.Duration { return 0 }
