"""Things that move: integrators, events, control."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel


def _lorenz(x, y, z, sigma, rho, beta):
    return sigma * (y - x), x * (rho - z) - y, x * y - beta * z


def lorenz_rk4(state, parameters):
    """A thousand steps, coordinates as numbers."""
    sigma, rho, beta = parameters[0], parameters[1], parameters[2]
    x, y, z = state[0], state[1], state[2]
    h = 0.005
    for _ in range(1000):
        k1x, k1y, k1z = _lorenz(x, y, z, sigma, rho, beta)
        k2x, k2y, k2z = _lorenz(x + h / 2 * k1x, y + h / 2 * k1y, z + h / 2 * k1z, sigma, rho, beta)
        k3x, k3y, k3z = _lorenz(x + h / 2 * k2x, y + h / 2 * k2y, z + h / 2 * k2z, sigma, rho, beta)
        k4x, k4y, k4z = _lorenz(x + h * k3x, y + h * k3y, z + h * k3z, sigma, rho, beta)
        x = x + h / 6 * (k1x + 2 * k2x + 2 * k3x + k4x)
        y = y + h / 6 * (k1y + 2 * k2y + 2 * k3y + k4y)
        z = z + h / 6 * (k1z + 2 * k2z + 2 * k3z + k4z)
    return x + 2 * y - z


def lorenz_rk4_vector(state, rho):
    """The same with the state as an array, and the path kept."""

    def f(s):
        return np.array([10.0 * (s[1] - s[0]), s[0] * (rho - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    h, steps = 0.01, 100
    path = np.zeros((steps + 1, 3))
    path[0] = state
    for t in range(steps):
        s = path[t]
        k1 = f(s)
        k2 = f(s + h / 2 * k1)
        k3 = f(s + h / 2 * k2)
        k4 = f(s + h * k3)
        path[t + 1] = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return path


def n_body_leapfrog(positions, velocities, masses):
    n = len(masses)
    x, v = positions.copy(), velocities.copy()
    dt = 0.01
    for _ in range(20):
        a = np.zeros_like(x)
        for i in range(n):
            for j in range(n):
                if i != j:
                    d = x[j] - x[i]
                    a[i] += masses[j] * d / (d @ d + 0.05) ** 1.5
        v = v + dt * a
        x = x + dt * v
    return x


def verlet(theta, omega, length):
    """A pendulum; the acceleration of the last step is used again."""
    dt = 0.05
    a = -9.81 / length * np.sin(theta)
    for _ in range(60):
        theta = theta + dt * omega + 0.5 * dt**2 * a
        new = -9.81 / length * np.sin(theta)
        omega = omega + 0.5 * dt * (a + new)
        a = new
    return theta, omega


def heun(y, rate):
    path = np.zeros(40)
    for i in range(40):
        path[i] = y
        slope = rate * y * (1 - y / 3)
        guess = y + 0.1 * slope
        y = y + 0.05 * (slope + rate * guess * (1 - guess / 3))
    return path


def euler_maruyama(x, mu, sigma, noise):
    for dw in noise:
        x = x + mu * (1.0 - x) * 0.02 + sigma * np.sqrt(abs(x) + 0.1) * dw
    return x


def rk45_adaptive(y, k):
    """Steps are accepted or rejected, and their length is chosen, by an error estimate (Bogacki and Shampine)."""
    t, h, end = 0.0, 0.1, 2.0
    while t < end:
        h = min(h, end - t)
        k1 = -k * y + np.sin(t)
        k2 = -k * (y + h / 2 * k1) + np.sin(t + h / 2)
        k3 = -k * (y + 3 * h / 4 * k2) + np.sin(t + 3 * h / 4)
        new = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = -k * new + np.sin(t + h)
        error = abs(h * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - k4 / 8))
        if error <= 1e-5:
            t = t + h
            y = new
        h = 0.9 * h * min(3.0, max(0.2, (1e-5 / (error + 1e-12)) ** (1 / 3)))
    return y


def epidemic(beta, gamma, infected):
    """SIR, with the peak of the infected."""
    s, i, r = 1 - infected, infected, 0.0
    peak = 0.0
    for _ in range(120):
        new, healed = 0.5 * beta * s * i, 0.5 * gamma * i
        s, i, r = s - new, i + new - healed, r + healed
        if i > peak:
            peak = i
    return s, peak, r


def bouncing_ball(height, speed, restitution):
    """Falls until it has hit the floor five times."""
    y, v, hits, time = height, speed, 0, 0.0
    while hits < 5:
        v = v - 9.81 * 0.01
        y = y + v * 0.01
        time = time + 0.01
        if y < 0:
            y = -restitution * y
            v = -restitution * v
            hits += 1
    return y, v + time


def projectile(speed, angle, drag):
    """Flies until it lands; where exactly is interpolated."""
    x, y, vx, vy = 0.0, 0.0, speed * np.cos(angle), speed * np.sin(angle)
    while True:
        before_x, before_y = x, y
        v = np.sqrt(vx * vx + vy * vy)
        vx = vx - 0.02 * drag * v * vx
        vy = vy - 0.02 * (9.81 + drag * v * vy)
        x, y = x + 0.02 * vx, y + 0.02 * vy
        if y < 0:
            break
    share = before_y / (before_y - y)
    return before_x + share * (x - before_x)


def pendulum_period(angle, length):
    """From rest to the first pass through the vertical."""
    theta, omega, t, dt, last = angle, 0.0, 0.0, 0.01, angle
    while theta > 0:
        last = theta
        omega -= dt * 9.81 / length * np.sin(theta)
        theta += dt * omega
        t += dt
    return 4 * (t - dt + dt * last / (last - theta))


def pid(gains, target):
    kp, ki, kd = gains[0], gains[1], gains[2]
    x, v, total, before, cost = 0.0, 0.0, 0.0, 0.0, 0.0
    for _ in range(100):
        error = target - x
        total += 0.05 * error
        force = kp * error + ki * total + kd * (error - before) / 0.05
        if force > 3.0:
            force = 3.0
        elif force < -3.0:
            force = -3.0
        before = error
        v += 0.05 * (force - 0.4 * v)
        x += 0.05 * v
        cost += 0.05 * error**2
    return cost, x


def integrate_and_fire(current, leak, threshold):
    """A neuron that is reset when it fires; the number of spikes is an integer."""
    n = len(current)
    trace = np.zeros(n)
    v, spikes = 0.0, 0
    for t in range(n):
        v = v + 0.3 * (-leak * v + current[t])
        if v > threshold:
            v = v - threshold
            spikes = spikes + 1
        trace[t] = v
    return trace, trace.sum() * spikes


def shooting(load, stiffness):
    """A beam from both ends: the slope at the left is sought (secants) that gives the right its height."""

    def end(slope):
        y, s = 0.0, slope
        for i in range(50):
            y, s = y + 0.02 * s, s + 0.02 * (stiffness * np.sin(y) - load * (i * 0.02))
        return y

    a, b = 0.0, 1.0
    fa, fb = end(a), end(b)
    while abs(fb) > 1e-10:
        a, b = b, b - fb * (b - a) / (fb - fa)
        fa, fb = fb, end(b)
    return b


def predator_prey(rates, start):
    """Midpoint rule; the least number of prey on the way."""
    x, y = start[0], start[1]
    least = x
    for _ in range(80):
        mx = x + 0.02 * x * (rates[0] - rates[1] * y)
        my = y + 0.02 * y * (rates[2] * x - rates[3])
        x, y = x + 0.04 * mx * (rates[0] - rates[1] * my), y + 0.04 * my * (rates[2] * mx - rates[3])
        least = min(least, x)
    return x, y, least


def spring_chain(x, stiffness):
    """Masses in a row with dampers, semi-implicit; the ends are held."""
    n = len(x)
    x, v = x.copy(), np.zeros(n)
    for _ in range(25):
        for i in range(1, n - 1):
            force = stiffness[i] * (x[i + 1] - x[i]) - stiffness[i - 1] * (x[i] - x[i - 1])
            v[i] += 0.05 * (force - 0.1 * v[i] ** 3)
        x += 0.05 * v
    return x


def _bodies(rng, n):
    return rng.normal(size=(n, 3)), 0.3 * rng.normal(size=(n, 3)), rng.uniform(0.5, 2, n)


KERNELS = (
    Kernel(
        lorenz_rk4,
        lambda rng, n: (np.array([1.0, 2.0, 20.0]), np.array([10.0, 28.0, 8 / 3])),
        sizes=(1,),
        rtol=1e-4,
        why="chaos: differences of nearby paths are far from linear",
    ),
    Kernel(lorenz_rk4_vector, lambda rng, n: (np.array([1.0, 2.0, 20.0]), 28.0), sizes=(1,)),
    Kernel(n_body_leapfrog, _bodies, sizes=(3, 9)),
    Kernel(verlet, lambda rng, n: (0.7, -0.3, 1.3), sizes=(1,)),
    Kernel(heun, lambda rng, n: (0.2, 0.9), sizes=(1,)),
    Kernel(euler_maruyama, lambda rng, n: (0.8, 1.2, 0.3, 0.14 * rng.normal(size=n)), sizes=(7, 40)),
    Kernel(rk45_adaptive, lambda rng, n: (1.3, 2.1), sizes=(1,)),
    Kernel(epidemic, lambda rng, n: (0.7, 0.2, 0.01), sizes=(1,)),
    Kernel(bouncing_ball, lambda rng, n: (1.7, 0.4, 0.8), sizes=(1,)),
    Kernel(projectile, lambda rng, n: (12.0, 0.8, 0.03), sizes=(1,)),
    Kernel(pendulum_period, lambda rng, n: (1.1, 0.9), sizes=(1,)),
    Kernel(pid, lambda rng, n: (np.array([4.0, 0.7, 0.9]), 1.0), sizes=(1,)),
    Kernel(integrate_and_fire, lambda rng, n: (rng.uniform(0.5, 2, n), 0.4, 1.0), sizes=(8, 40)),
    Kernel(shooting, lambda rng, n: (2.0, 3.0), sizes=(1,)),
    Kernel(predator_prey, lambda rng, n: (np.array([1.1, 0.4, 0.1, 0.4]), np.array([10.0, 5.0])), sizes=(1,)),
    Kernel(spring_chain, lambda rng, n: (np.arange(n) + 0.2 * rng.normal(size=n), rng.uniform(1, 2, n)), sizes=(5, 12)),
)
