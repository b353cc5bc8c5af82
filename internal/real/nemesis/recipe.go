package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A subject is what the processes use, and how their history is judged.
type subject struct {
	workload func(*worker) workload
	check    func(r *Round, name string) error
	foreign  bool // not ours, so not run unless it is asked for
}

// A workload is what a process does.
type workload struct {
	step func() error // one operation, with what belongs to it
	rest func() error // gives back what is held across operations; may be nil
}

var recipes = map[string]subject{
	"lock":          {workload: lockWork, check: checkLock},
	"zk.Lock":       {workload: zkLockWork, check: checkLock, foreign: true},
	"simple":        {workload: simpleWork, check: checkLock},
	"rwlock":        {workload: rwlockWork, check: checkRWLock},
	"semaphore":     {workload: semaphoreWork, check: checkSemaphore},
	"election":      {workload: electionWork, check: checkElection},
	"queue":         {workload: queueWork, check: checkQueue},
	"barrier":       {workload: barrierWork, check: checkBarrier},
	"doublebarrier": {workload: doubleBarrierWork, check: checkDoubleBarrier},
	"group":         {workload: groupWork, check: checkGroup},
	"once":          {workload: onceWork, check: checkOnce},
}

// chosen returns the names of recipes in a list. An empty list stands for all.
func chosen(list string) ([]string, error) {
	if list == "" {
		ours := slices.Sorted(maps.Keys(recipes))
		return slices.DeleteFunc(ours, func(name string) bool { return recipes[name].foreign }), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if _, ok := recipes[name]; !ok {
			return nil, fmt.Errorf("there is no recipe %q, but %s", name,
				strings.Join(slices.Sorted(maps.Keys(recipes)), ", "))
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("recipe %q is named twice", name)
		}
	}
	return names, nil
}
