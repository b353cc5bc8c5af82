package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	workIfTold()
	os.Exit(m.Run())
}
