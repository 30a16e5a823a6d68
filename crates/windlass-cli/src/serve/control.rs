//! The control thread: signals, and what they ask for.
//!
//! It has an event loop of its own, so that reading files and starting a program hold up no
//! connection.
//!
//! ```text
//!  SIGINT, SIGTERM ─▶ (delay) ─▶ stop the loops ─▶ again: cut
//!  SIGHUP          ─▶ reload
//!  SIGUSR1         ─▶ dump
//!  SIGUSR2         ─▶ restart: start the successor ─▶ it is ready ─▶ stop the loops
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use windlass::Disposition::Keep;
use windlass::event_loop::{Context, EventLoop, Poster, Reactor, Signal, SignalInfo};
use windlass_sys::activation;

use super::args::ServeArguments;
use super::config::Config;
use super::loops::Loops;
use super::metrics::Metrics;
use super::restart::Restart;
use super::site::{Served, Surroundings};
use crate::{chain, say};

/// The state of the control loop.
#[derive(Debug)]
pub(super) struct Control<V: Served> {
    pub(super) arguments: Arc<ServeArguments>,
    /// What is in force.
    pub(super) config: Config,
    pub(super) around: Surroundings,
    /// What is served, until a reload.
    pub(super) service: Arc<V>,
    pub(super) loops: Loops<V>,
    pub(super) metrics: Option<Metrics>,
    /// Under which name the listeners go to a successor.
    pub(super) pass_as: &'static str,
    pub(super) phase: Phase,
    /// The successor, until it is ready.
    pub(super) restart: Option<Restart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// The health check fails already.
    Delaying,
    Stopping,
}

pub(super) type Cx<'a, V> = Context<'a, 'static, Control<V>>;

/// The control thread, from outside.
pub(super) struct ControlThread<V: Served> {
    poster: Poster<'static, Control<V>>,
    thread: JoinHandle<Result<Control<V>, String>>,
}

impl<V: Served> ControlThread<V> {
    /// Starts the thread; when this returns, signals are watched.
    pub(super) fn start(mut control: Control<V>) -> Result<Self, Box<dyn Error>> {
        let (ready, is_ready) = channel();
        let thread = Builder::new().name("control".into()).spawn(move || {
            let opened = open();
            let mut event_loop = match opened {
                Ok(event_loop) => event_loop,
                Err(error) => {
                    let _ = ready.send(Err(chain(&*error)));
                    return Err(chain(&*error));
                }
            };
            // The other side waits for it.
            let _ = ready.send(Ok(event_loop.poster()));
            let ran = event_loop.run(&mut control);
            if let Err(error) = &ran {
                say(format_args!("{}: stopping", chain(error)));
                control.begin_stop();
            }
            ran.map(|_| control).map_err(|error| chain(&error))
        })?;
        match is_ready.recv() {
            Ok(Ok(poster)) => Ok(Self { poster, thread }),
            Ok(Err(error)) => Err(format!("watch for signals: {error}").into()),
            Err(_) => Err("the control thread ended as it began".into()),
        }
    }

    /// Ends the thread; answers what it leaves.
    pub(super) fn end(self) -> Result<Control<V>, Box<dyn Error>> {
        // It may have ended by itself.
        self.poster.stop();
        match self.thread.join() {
            Ok(result) => Ok(result?),
            Err(_) => Err("the control thread panicked".into()),
        }
    }
}

/// Opens the loop and watches for signals.
fn open<V: Served>() -> Result<EventLoop<'static, Control<V>>, Box<dyn Error>> {
    let mut event_loop = EventLoop::new()?;
    // Without a signal the loop would have nothing to wait for.
    event_loop.hold();
    on_signal(&mut event_loop, Signal::INT, Control::stop)?;
    on_signal(&mut event_loop, Signal::TERM, Control::stop)?;
    on_signal(&mut event_loop, Signal::HUP, |control, _, _| {
        control.reload()
    })?;
    on_signal(&mut event_loop, Signal::USR1, |control, _, _| {
        control.dump()
    })?;
    on_signal(&mut event_loop, Signal::USR2, |control, cx, _| {
        control.restart(cx)
    })?;
    Ok(event_loop)
}

fn on_signal<V: Served>(
    reactor: &mut Reactor<'static, Control<V>>,
    signal: Signal,
    run: fn(&mut Control<V>, &mut Cx<'_, V>, SignalInfo),
) -> Result<(), Box<dyn Error>> {
    reactor.on_signal(signal, move |control, cx, info| {
        run(control, cx, info);
        Keep
    })?;
    Ok(())
}

impl<V: Served> Control<V> {
    fn stop(&mut self, cx: &mut Cx<'_, V>, info: SignalInfo) {
        let delay = self.config.stop.delay;
        match self.phase {
            Phase::Serving if delay.0.is_zero() => {
                say(format_args!("{info}, stopping"));
                self.begin_stop();
            }
            Phase::Serving => {
                self.phase = Phase::Delaying;
                self.around.health.set_stopping();
                say(format_args!("{info}, stopping in {delay}"));
                let begun = cx.after(delay.0, |control: &mut Self, _| {
                    if control.phase == Phase::Delaying {
                        say(format_args!("stopping"));
                        control.begin_stop();
                    }
                });
                if let Err(error) = begun {
                    say(format_args!("{}: stopping", chain(&error)));
                    self.begin_stop();
                }
            }
            Phase::Delaying => {
                say(format_args!("{info}, again: stopping at once"));
                self.begin_stop();
                // Gone already.
                let _ = self.loops.stop.stop();
            }
            Phase::Stopping => {
                say(format_args!("{info}, again: stopping at once"));
                // Gone already.
                let _ = self.loops.stop.stop();
            }
        }
    }

    /// Stops gracefully.
    pub(super) fn begin_stop(&mut self) {
        self.phase = Phase::Stopping;
        self.around.health.set_stopping();
        if let Some(restart) = self.restart.take() {
            restart.abandon();
        }
        tell_manager("STOPPING=1");
        // Gone already.
        let _ = self.loops.stop.stop();
    }

    /// Writes the events of all loops to standard error.
    fn dump(&self) {
        let dumps = self.loops.ask(|thread| thread.dump());
        let mut text = String::new();
        for (at, dump) in dumps.into_iter().enumerate() {
            let dump = dump.unwrap_or_else(|| "does not answer\n".to_owned());
            for line in dump.lines() {
                text.push_str(&format!("loop {at}: {line}\n"));
            }
        }
        // Nobody reads there.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Tells the service manager, if there is one, sd_notify(3).
pub(super) fn tell_manager(state: &str) {
    if let Err(error) = activation::notify(state) {
        say(format_args!("tell the service manager {state:?}: {error}"));
    }
}
